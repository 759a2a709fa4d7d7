/**
 * @file
 * Looking after the cache folder: where it is, what is in it, whether it is sound.
 */
#ifndef KJIT_CACHE_H
#define KJIT_CACHE_H

#include <kjit/build.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The user cache folder in use.
 * @param runtime  the runtime
 * @return borrowed from the runtime; NULL when it keeps kernels in memory only
 * @par Thread safety  Thread-safe.
 */
KJIT_API const char *kjit_cache_path(const kjit_runtime *runtime);

/** One entry of the cache. Strings are borrowed for the callback's duration. */
typedef struct kjit_cache_entry {
  size_t struct_size;
  const char *key;       /**< 64 hex digits                                                         */
  const char *key_text;  /**< "" when damaged                                                       */
  const char *family;    /**< "flash_forward", "custom", …; "" when damaged                         */
  const char *label;     /**< what people call it: the short form, or the source's name             */
  const char *arch;      /**< "" when damaged                                                       */
  const char *entry;     /**< kernel name; "" when damaged                                          */
  const char *log;       /**< compiler's messages                                                   */
  uint64_t bytes;        /**< size of the entry's file                                              */
  uint64_t cubin_bytes;  /**< size of the cubin in it                                               */
  int64_t last_used;     /**< seconds since 1970, by the cache's own record                         */
  uint32_t registers;    /**< registers of a thread, as ptxas reports them                          */
  uint32_t spill_bytes;  /**< bytes that a thread spills to local memory                            */
  uint32_t shared_bytes; /**< static shared memory of a block                                       */
  double compile_ms;     /**< how long the compiler took                                            */
  uint32_t origin;       /**< KJIT_ORIGIN_USER or KJIT_ORIGIN_SITE: which folder                    */
  int32_t status;        /**< KJIT_OK, or KJIT_ERR_CORRUPT                                          */
  const char *damage;    /**< what is wrong with it; "" when sound                                  */
  const void *cubin;     /**< ELF image of cubin_bytes bytes; NULL when damaged                     */
} kjit_cache_entry;

/**
 * Called for each entry.
 * @param user   what was passed with the callback
 * @param entry  borrowed, with all its strings, for the call
 * @return 0 to go on, nonzero to stop; stopping is not an error
 */
typedef int (*kjit_cache_visit)(void *user, const kjit_cache_entry *entry);

/**
 * Visit every entry of the user folder, in no particular order. Each is read whole and checked.
 * @param runtime  the runtime whose folder is visited
 * @param visit    called for each entry, damaged ones included
 * @param user     passed to visit
 * @retval KJIT_OK, KJIT_ERR_IO, KJIT_ERR_NO_MEMORY
 * @par Thread safety  Thread-safe; safe while other processes use the folder.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_cache_list(kjit_runtime *runtime, kjit_cache_visit visit, void *user,
                                                    kjit_error *error);

/**
 * Visit the entry whose key begins with `prefix`.
 * @param runtime  the runtime whose folder is searched
 * @param prefix   at least 4 hex digits
 * @param visit    called once, with key text and log
 * @param user     passed to visit
 * @retval KJIT_OK
 * @retval KJIT_ERR_NOT_FOUND    no entry's key begins so
 * @retval KJIT_ERR_INVALID_ARG  not hex, too short, or several entries begin so
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_cache_show(kjit_runtime *runtime, const char *prefix, kjit_cache_visit visit,
                                                    void *user, kjit_error *error);

/** What a pass over the folder found. */
typedef struct kjit_cache_report {
  size_t struct_size;
  uint64_t entries;         /**< entries that were looked at            */
  uint64_t bytes;           /**< size of all of them                    */
  uint64_t damaged;         /**< entries among them that are damaged    */
  uint64_t removed;         /**< entries that were removed              */
  uint64_t removed_bytes;   /**< size of the removed ones               */
  uint64_t temporary_files; /**< left behind by killed writers: counted by verify, removed by prune and clear */
} kjit_cache_report;

#define KJIT_CACHE_REPAIR 0x1u /**< flag of kjit_cache_verify(): remove damaged entries */

/**
 * Check every entry of the user folder.
 * @param      runtime  the runtime whose folder is checked
 * @param      flags    0 or ::KJIT_CACHE_REPAIR
 * @param[out] report   what was found; `struct_size` must be set
 * @retval KJIT_OK      the folder was read; report->damaged says whether it is sound
 * @retval KJIT_ERR_IO
 * @par Thread safety  Thread-safe; safe while other processes use the folder.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_cache_verify(kjit_runtime *runtime, uint32_t flags, kjit_cache_report *report,
                                                      kjit_error *error);

/**
 * Remove the least recently used entries until at most `max_bytes` remain.
 * @param      runtime    the runtime whose folder is pruned
 * @param      max_bytes  size to which the folder shrinks; 0 removes every entry
 * @param[out] report     what was removed; `struct_size` must be set
 * @retval KJIT_OK, KJIT_ERR_IO
 * @par Thread safety  Thread-safe; safe while other processes use the folder.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_cache_prune(kjit_runtime *runtime, uint64_t max_bytes,
                                                     kjit_cache_report *report, kjit_error *error);

/**
 * Remove every entry. A process that has read an entry keeps its copy.
 * @param      runtime  the runtime whose folder is emptied
 * @param[out] report   what was removed; `struct_size` must be set
 * @retval KJIT_OK, KJIT_ERR_IO
 * @par Thread safety  Thread-safe; safe while other processes use the folder.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_cache_clear(kjit_runtime *runtime, kjit_cache_report *report,
                                                     kjit_error *error);

/** What the user folder holds, and what all processes did with it since it was made. Grows only at the end. */
typedef struct kjit_cache_stats {
  size_t struct_size;
  uint64_t entries;         /**< entries in the folder, by its own count    */
  uint64_t bytes;           /**< size of all of them                        */
  uint64_t max_entries;     /**< this runtime's bound on the entries        */
  uint64_t max_bytes;       /**< this runtime's bound on the size           */
  uint64_t hits;            /**< requests that this folder answered         */
  uint64_t misses;          /**< requests that no tier could answer         */
  uint64_t builds;          /**< compilations that succeeded                */
  uint64_t build_failures;  /**< compilations that failed                   */
  uint64_t build_ns;        /**< time spent compiling                       */
  uint64_t waits;           /**< requests that waited for another's build   */
  uint64_t wait_ns;         /**< time spent waiting                         */
  uint64_t rebuilt_entries; /**< entries damaged or refused by the driver   */
  uint64_t evictions;       /**< entries removed to stay within the bounds  */
  uint64_t published;       /**< entries written                            */
  uint64_t bytes_read;      /**< bytes of entries that were read            */
  uint64_t bytes_written;   /**< bytes of entries that were written            */
  uint64_t cache_errors;    /**< file operations that failed                */
} kjit_cache_stats;

/**
 * Read the folder's statistics. A process adds its counts when it publishes an entry and when its runtime ends, so the
 * last counts of a killed process may be missing. All zero when there is no folder.
 * @param      runtime  the runtime whose folder is read
 * @param[out] stats    `stats->struct_size` must be set
 * @retval KJIT_OK, KJIT_ERR_INVALID_ARG
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_cache_get_stats(kjit_runtime *runtime, kjit_cache_stats *stats,
                                                         kjit_error *error);

/** One field in which two keys differ. Strings are borrowed for the callback's duration. */
typedef struct kjit_cache_difference {
  size_t struct_size;
  const char *field;  /**< "target", "compiler", "option", "prologue", "source flash_forward/params.h", … */
  const char *wanted; /**< in the key asked about; "" if it lacks the field                               */
  const char *found;  /**< in the nearest entry; "" if that lacks it                                      */
  /** Of a source: the first line that differs, from 1. 0 for any other field, and when one of the two texts is not kept
      (kjit_runtime_options.source_max_bytes). */
  uint32_t line;
  uint32_t reserved;       /**< zero */
  const char *wanted_line; /**< that line in the source asked about, at most 500 bytes of UTF-8 around the first
                                difference, other bytes as "\xNN"; NULL: the file ends before it, or line is 0 */
  const char *found_line;  /**< the same in the nearest entry's source */
} kjit_cache_difference;

/**
 * Called for each difference.
 * @param user        what was passed with the callback
 * @param difference  borrowed, with all its strings, for the call
 * @return 0 to go on, nonzero to stop
 */
typedef int (*kjit_cache_difference_visit)(void *user, const kjit_cache_difference *difference);

/**
 * Explain why a key is a miss: find the entry of the user folder whose key is nearest, other than the key itself, and
 * visit each field in which the two differ. In a field of several lines (the prologue) each differing line counts.
 *
 * @param      runtime  the runtime whose folder is searched
 * @param      key      a key text (kjit_artifact_info.key_text), or at least 4 hex digits of an entry's key
 * @param[out] nearest  the nearest entry's key, 64 hex digits and NUL; "" on failure
 * @param      visit    called for each difference
 * @param      user     passed to visit
 * @retval KJIT_OK
 * @retval KJIT_ERR_NOT_FOUND    no entry begins with these digits, or there is no other entry to compare with
 * @retval KJIT_ERR_INVALID_ARG  neither a key text nor hex digits, or several entries begin so
 * @retval KJIT_ERR_IO, KJIT_ERR_NO_MEMORY
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_cache_why(kjit_runtime *runtime, const char *key, char nearest[65],
                                                   kjit_cache_difference_visit visit, void *user, kjit_error *error);

/**
 * Write the sound entries of the user folder to one file, a bundle (bundle.h) without compression and without
 * signature. The file is replaced when the new one is complete; a symbolic link to a file stays, and that file is
 * replaced; a device, a pipe or a socket is refused. Kernels are held in memory until then. Of two entries that differ
 * by the compiler alone, the one with the greater key text is written.
 *
 * @param      runtime  the runtime whose folder is exported
 * @param      path     the file to write
 * @param      filter   NULL for every entry, or "name=value[,name=value…]", all of which must hold; a name is family,
 *                      arch, entry, label (the value is a part of it) or key (the value is its first digits)
 * @param[out] report   may be NULL; entries and bytes count what the filter accepted, damaged what was left out
 * @retval KJIT_OK, KJIT_ERR_INVALID_ARG, KJIT_ERR_IO, KJIT_ERR_NO_MEMORY
 * @retval KJIT_ERR_UNSUPPORTED  more than a bundle holds: 1,048,576 kernels, 256 architectures, 4 GiB
 * @par Thread safety  Thread-safe; safe while other processes use the folder.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_cache_export(kjit_runtime *runtime, const char *path, const char *filter,
                                                      kjit_cache_report *report, kjit_error *error);

/**
 * Publish the kernels of a bundle (bundle.h, kjit_cache_export()) in the user folder. Each is checked as an entry is
 * checked when it is read; a damaged one is left out and counted. The checksum guards against accidents, not against
 * forgery, so import only files whose kernels you would run. A runtime with trusted keys imports only bundles that one
 * of them signed.
 *
 * @param      runtime  the runtime into whose folder the kernels go
 * @param      path     the bundle
 * @param[out] report   may be NULL; entries and bytes count what was published, damaged what was left out
 * @retval KJIT_OK
 * @retval KJIT_ERR_NOT_FOUND  no such file
 * @retval KJIT_ERR_CORRUPT    not a bundle, cut short, or its index is damaged; nothing has been imported
 * @retval KJIT_ERR_UNTRUSTED  there are trusted keys, and none of them signed this
 * @retval KJIT_ERR_IO         the file cannot be read, there is no writable cache folder, or an entry cannot be
 *                             written: error->cause says that the disk is full (ENOSPC, EDQUOT), bounded below the
 *                             entry's size (EFBIG), or locked by another process that is stopped (EBUSY); kernels
 *                             before it were imported
 * @retval KJIT_ERR_NO_MEMORY
 * @par Thread safety  Thread-safe; safe while other processes use the folder.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_cache_import(kjit_runtime *runtime, const char *path,
                                                      kjit_cache_report *report, kjit_error *error);

#ifdef __cplusplus
}
#endif
#endif
