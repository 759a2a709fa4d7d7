/**
 * @file
 * The runtime object: owns the caches, the compiler and driver connections, and the loaded kernels.
 */
#ifndef KJIT_RUNTIME_H
#define KJIT_RUNTIME_H

#include <kjit/common.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kjit_runtime kjit_runtime;
struct kjit_remote_store; /* remote.h */

/** What may be done with the cache folder. Environment: KJIT_CACHE_MODE=rw|ro|off. */
typedef enum kjit_cache_mode {
  KJIT_CACHE_DEFAULT = 0, /**< environment, else read-write       */
  KJIT_CACHE_RW = 1,      /**< read and publish                   */
  KJIT_CACHE_RO = 2,      /**< read, never write                  */
  KJIT_CACHE_OFF = 3      /**< memory only: no file is touched    */
} kjit_cache_mode;

/** Ignore all KJIT_* environment variables (always so in a set-user-id process). */
#define KJIT_RUNTIME_IGNORE_ENVIRONMENT 0x1u
/** Choose kernels by the rules alone, whatever was measured (tune.h). Environment: KJIT_TUNED=off. */
#define KJIT_RUNTIME_IGNORE_TUNED 0x2u
/** Ask NVRTC for the time of its phases (kjit_artifact_get_phases()). Kernels are then compiled in this process, also
 * with a compile server. Environment: KJIT_TIME=on. */
#define KJIT_RUNTIME_TIME_PHASES 0x4u
/** Show compiles, links and loads as ranges of the NVTX domain "kjit", under a profiler that sets
 * $NVTX_INJECTION64_PATH. Environment: KJIT_NVTX=on. */
#define KJIT_RUNTIME_NVTX 0x8u

/**
 * Where kernels are compiled. Environment: KJIT_COMPILE_SERVER=on|off.
 *
 * Off by default, because a library that starts processes unasked surprises the program around it: one that waits for
 * any child sees ours, and one that is confined may not fork at all. On, compiles run side by side on all cores, can
 * be killed, and a compiler that crashes, hangs or eats memory costs one kernel. Where the system refuses it, kernels
 * are compiled in the process, and the log says so once.
 */
typedef enum kjit_compile_server {
  KJIT_COMPILE_SERVER_DEFAULT = 0, /**< environment, else off                                */
  KJIT_COMPILE_SERVER_OFF = 1,     /**< in this process                                      */
  KJIT_COMPILE_SERVER_ON = 2       /**< in child processes of kjit-compile-worker (worker.h) */
} kjit_compile_server;

/**
 * When the compile server holds headers precompiled: for sources that begin with #include lines and reach more than
 * 1 MiB of headers, with NVRTC from 12.8 on. Bytes and log of a kernel are the same with and without. Environment:
 * KJIT_PCH=auto|always|off.
 */
typedef enum kjit_pch_mode {
  KJIT_PCH_DEFAULT = 0, /**< environment, else auto                                                        */
  KJIT_PCH_OFF = 1,
  KJIT_PCH_AUTO = 2,  /**< made in the background at the second use of the same headers, used once there */
  KJIT_PCH_ALWAYS = 3 /**< made at the first use, which waits for it                                     */
} kjit_pch_mode;

/**
 * Tiered build: while the kernel that is chosen for an attention problem is compiled by a thread of the library's own,
 * calls are served by a first-tier kernel, which takes longer to run and a third as long to compile. The first call
 * after that goes over to the chosen kernel, without waiting. Results of the two differ as those of two kernels do.
 * Forward calls without a variant and without a config of the caller's; never a plan, nor a stream that is captured,
 * nor a call in another context than the device's primary one, because the thread builds and loads in that.
 * What is in memory or in the cache is taken at once. Counted: first_tier_calls and tier_swaps of kjit_runtime_stats.
 * Environment: KJIT_TIERED=off|on|N, N being tier_calls.
 */
typedef enum kjit_tiered {
  KJIT_TIERED_DEFAULT = 0, /**< environment, else off                             */
  KJIT_TIERED_OFF = 1,     /**< the first call waits for the kernel that is chosen */
  KJIT_TIERED_ON = 2
} kjit_tiered;

/** For kjit_runtime_options.source_max_bytes: no text of a source is written to the cache folder. */
#define KJIT_KEEP_NO_SOURCES UINT64_MAX

/** A bundle in memory, as `kjit bundle create --c-source` writes it. Borrowed: it must outlive the runtime. */
typedef struct kjit_bundle_blob {
  const void *data;
  size_t bytes;
} kjit_bundle_blob;

/** How a runtime is set up. Zero in any field means its default. An option that is set wins over the environment. */
typedef struct kjit_runtime_options {
  size_t struct_size;         /**< sizeof as the caller saw it                                                     */
  const char *cache_dir;      /**< user cache folder; NULL: $KJIT_CACHE_DIR, $XDG_CACHE_HOME/kjit, ~/.cache/kjit  */
  const char *site_dir;       /**< read-only cache folder asked before the user's; NULL: $KJIT_CACHE_SITE or none */
  uint64_t cache_max_bytes;   /**< bound on the user folder; 0: $KJIT_CACHE_MAX_BYTES or 1 GiB                    */
  uint32_t cache_max_entries; /**< bound on its entries; 0: 100,000                                               */
  uint32_t cache_mode;        /**< a ::kjit_cache_mode                                                            */
  const char *nvrtc_path;     /**< path of libnvrtc; NULL: $KJIT_NVRTC, then the usual places                     */
  const char *libcuda_path;   /**< path of libcuda; NULL: $KJIT_LIBCUDA, then libcuda.so.1                        */
  kjit_allocator allocator;   /**< all zero: malloc and free                                                      */
  kjit_log_fn log;            /**< NULL: silence                                                                  */
  void *log_user;             /**< passed to log                                                                  */
  uint32_t flags;             /**< KJIT_RUNTIME_*                                                                 */
  uint32_t reserved;          /**< zero                                                                           */
  /** Bundles (bundle.h), asked before every folder, in order; any that cannot be opened fails kjit_runtime_create().
      Neither paths nor blobs: $KJIT_BUNDLE, paths separated by ":"; what is wrong with one of those goes to the log. */
  const char *const *bundle_paths;
  size_t bundle_count;
  const kjit_bundle_blob *bundle_blobs; /**< asked before the paths                                              */
  size_t bundle_blob_count;
  /** Ed25519 public keys, 64 lower-case hex digits each. With any, a bundle is opened and entries are imported only if
      one of these keys signed them, and every digest is checked at once. None: whatever is sound. */
  const char *const *trusted_keys;
  size_t trusted_key_count;
  const char *record_path; /**< kjit_runtime_record() from the start; NULL: $KJIT_RECORD or nothing               */
  /** Bounds on the compiled kernels kept in this process's memory, failed compiles included: beyond either, the least
      recently used of those that nobody holds go (a loaded kernel holds its own) and are read from the cache folder
      when they are asked for again. What is held counts, and stays. */
  uint64_t memory_max_bytes;   /**< 0: 256 MiB                                                                    */
  uint64_t memory_max_entries; /**< 0: 16,384                                                                     */
  uint64_t modules_max_idle; /**< loaded cubins of one's own kernels that stay loaded though nobody holds them, the most
                                  recently held ones (kernel.h); 0: 1,024                                           */
  uint32_t compile_server;   /**< a ::kjit_compile_server                                                       */
  uint32_t pch;              /**< a ::kjit_pch_mode                                                             */
  const char *worker_path;   /**< absolute path of kjit-compile-worker; NULL: $KJIT_WORKER, then beside the library
                                  or in the libexec folder that belongs to it                                   */
  uint64_t compile_memory_max_bytes; /**< bound on the address space of a compile in the server; 0:
                                          $KJIT_COMPILE_MEMORY_MAX_BYTES or the machine's memory                  */
  uint32_t background_max_ms; /**< how long a compile goes on after the deadline of the call that asked for it, so that
                                   a later call finds it done; 0: 300,000                                         */
  uint32_t remote_end_ms;     /**< kjit_runtime_destroy() waits so long for entries that are in line for a remote store,
                                   and drops the others; 0: 2,000                                                 */
  const char *dump_dir;       /**< absolute path of a folder in which each compile leaves a folder NAME.ARCH.KEY with
                                   source.cu, kernel.ptx, kernel.cubin, log.txt, options.txt, key.txt and times.txt, at
                                   most 4,096 of them; made when it is missing. Kernels are then compiled in this
                                   process. NULL: $KJIT_DUMP, or nowhere                                           */
  /** Remote stores (remote.h), asked after every folder, in order. cache_remote: "URL[,URL]", each with options behind
      "|", as in cache/README.md; NULL: $KJIT_CACHE_REMOTE, unless remote_stores are given. A store that cannot be used
      is told to the log and left out. With trusted_keys, or else those of $KJIT_CACHE_TRUSTED_KEYS, separated by ",",
      only entries count that one of these keys signed. */
  const char *cache_remote;
  const struct kjit_remote_store *remote_stores; /**< asked before the URLs                                       */
  size_t remote_store_count;
  const char *signing_key_path; /**< the file of a secret key, as `kjit bundle keygen` writes it, that signs what is put
                                     into the stores; NULL: $KJIT_CACHE_SIGNING_KEY or no signatures              */
  uint32_t tiered;              /**< a ::kjit_tiered                                                              */
  uint32_t tier_calls; /**< with KJIT_TIERED_ON: so many calls that choose a kernel are served by the first tier, and
                          the next one waits for the kernel, so that which kernel computes a call depends neither on
                          time nor on the cache. 0: until it is loaded                                               */
  /** Bound on the texts of one's own sources that the user folder keeps beside the kernels, the toolkit's headers left
      out, so that `kjit cache why` can name the line that changed; the oldest go first. 0: $KJIT_CACHE_SOURCES
      ("off" or a number of bytes) or 64 MiB; KJIT_KEEP_NO_SOURCES: none are kept. */
  uint64_t source_max_bytes;
} kjit_runtime_options;

/** Options with struct_size set and everything else at its default. */
static inline kjit_runtime_options kjit_runtime_options_default(void) {
  kjit_runtime_options options = KJIT_ZERO;
  options.struct_size = sizeof options;
  return options;
}

/**
 * Make a runtime. Cheap: nothing is loaded, no folder is scanned; libcuda and NVRTC are opened when first needed.
 *
 * @param[out] out      the runtime, ended with kjit_runtime_destroy()
 * @param      options  NULL means the defaults
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG  a field has an impossible value (which one is in the error)
 * @retval KJIT_ERR_UNSUPPORTED  options are from a newer header and use a field that this library does not know
 * @retval KJIT_ERR_NOT_FOUND, KJIT_ERR_IO, KJIT_ERR_CORRUPT, KJIT_ERR_UNTRUSTED  a bundle, as kjit_bundle_open() says
 * @retval KJIT_ERR_NO_MEMORY
 * @par Thread safety  Thread-safe; the runtime may be shared between threads.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_runtime_create(kjit_runtime **out, const kjit_runtime_options *options,
                                                        kjit_error *error);

/**
 * End a runtime: unloads its kernels and frees everything, ends the processes of its compile server, and waits for
 * compiles that go on in this process after their callers' deadlines: until NVRTC's front end is through, which may
 * take seconds.
 * Artifacts, kernels and plans taken from it must have been released before, and their launches must have finished.
 * After the last one a program that opened the library with dlopen() may close it: nothing of it stays. NVRTC and
 * libcuda, once opened, do, until the process ends. Accepts NULL.
 * @param runtime  may be NULL
 * @par Thread safety  Not thread-safe.
 */
KJIT_API void kjit_runtime_destroy(kjit_runtime *runtime);

/**
 * Give up every compile that is under way, as a program that is about to end wants it. Calls that wait or compile end
 * with KJIT_ERR_CANCELLED, those in the compile server at once, those in this process when NVRTC's front end is through
 * (a call with a deadline or a stop function leaves at once there too). From then on this runtime compiles nothing;
 * what memory and cache hold is still found. It must be destroyed as any other.
 * @param runtime  may be NULL
 * @par Thread safety  Thread-safe; also while other threads are in calls of this runtime. Not for signal handlers.
 */
KJIT_API void kjit_runtime_cancel(kjit_runtime *runtime);

/**
 * Wait until no thread is inside the compiler for this runtime in this process. A program that ends while threads that
 * it cannot join may be in calls of the runtime calls kjit_runtime_cancel(), then this, and returns from main()
 * without kjit_runtime_destroy(): NVRTC takes itself down when the process ends, and a thread that compiles then
 * crashes. Where the runtime was not cancelled, another compile may begin at once.
 * @param runtime     required
 * @param timeout_ms  the longest wait, in milliseconds; 0: only look
 * @param error       may be NULL
 * @retval KJIT_OK               no thread was compiling
 * @retval KJIT_ERR_TIMEOUT      one still was
 * @retval KJIT_ERR_INVALID_ARG  runtime is NULL
 * @par Thread safety  Thread-safe; also while other threads are in calls of this runtime.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_runtime_wait_compiles(kjit_runtime *runtime, uint32_t timeout_ms,
                                                               kjit_error *error);

/** Counters since the runtime was made. Only ever grow at the end. */
typedef struct kjit_runtime_stats {
  size_t struct_size;
  uint64_t memory_hits;      /**< answered by an artifact already in this process                */
  uint64_t user_hits;        /**< answered by the user's cache folder                            */
  uint64_t site_hits;        /**< answered by the site folder                                    */
  uint64_t bundle_hits;      /**< answered by a bundle                                           */
  uint64_t misses;           /**< requests that no tier could answer                             */
  uint64_t builds;           /**< compilations that succeeded                                    */
  uint64_t build_failures;   /**< compilations that failed                                       */
  uint64_t build_ns;         /**< wall time spent compiling, summed over threads                 */
  uint64_t waits;            /**< requests that waited for another thread's or process's build   */
  uint64_t wait_ns;          /**< time spent so                                                  */
  uint64_t rebuilt_entries;  /**< entries found damaged or refused, set aside and built again    */
  uint64_t evictions;        /**< entries removed to stay within the bounds                      */
  uint64_t published;        /**< entries written                                                */
  uint64_t bytes_read;       /**< of entries                                                     */
  uint64_t bytes_written;    /**< of entries                                                     */
  uint64_t cache_errors;     /**< file operations that failed and were worked around             */
  uint64_t kernels_loaded;   /**< cubins handed to the driver                                    */
  uint64_t launches;         /**< by kjit_kernel_launch and the families; not counted for plans  */
  uint64_t kernels_unloaded; /**< cubins taken out of the driver, as nobody held them           */
  uint64_t remote_hits;      /**< answered by a remote store                                     */
  uint64_t remote_misses;    /**< questions to a remote store that has no such entry             */
  uint64_t remote_refused;   /**< answers of a remote store that were damaged, or not signed by a trusted key */
  uint64_t remote_errors;    /**< calls to a remote store that failed or took too long           */
  uint64_t remote_puts;      /**< entries written to a remote store                              */
  uint64_t remote_dropped;   /**< entries that were not written, because the line was full or the runtime ended */
  uint64_t remote_leases;    /**< builds that a lease of a remote store gave to this process     */
  uint64_t remote_waits;     /**< builds elsewhere that were waited for, as their lease was taken */
  uint64_t first_tier_calls; /**< attention calls that a first-tier kernel served                */
  uint64_t tier_swaps;       /**< kernels that were built meanwhile and taken in its place       */
  uint64_t not_kept;         /**< kernels built that KJIT_CACHE_RW could not write to the user's folder */
} kjit_runtime_stats;

/**
 * Read the counters. `stats->struct_size` must be set; what a smaller struct has no room for is left out.
 * @param      runtime  the runtime
 * @param[out] stats    the counters
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG
 * @par Thread safety  Thread-safe; each counter is exact, the set is not one snapshot.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_runtime_get_stats(kjit_runtime *runtime, kjit_runtime_stats *stats,
                                                           kjit_error *error);

/**
 * Free text that a function of this runtime handed out.
 * @param runtime  the runtime that handed the text out
 * @param text     may be NULL
 * @par Thread safety  Thread-safe.
 */
KJIT_API void kjit_text_free(kjit_runtime *runtime, char *text);

#ifdef __cplusplus
}
#endif
#endif
