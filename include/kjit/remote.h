/**
 * @file
 * The remote tier: stores of compiled kernels that many machines share, asked after the folders of this one.
 *
 * Stores are named by URL (kjit_runtime_options.cache_remote, $KJIT_CACHE_REMOTE) or given as tables of functions
 * (::kjit_remote_store). cache/README.md says what is promised and what is not.
 */
#ifndef KJIT_REMOTE_H
#define KJIT_REMOTE_H

#include <kjit/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Never written to. In a URL: "|ro". */
#define KJIT_REMOTE_READ_ONLY 0x1u
/** Never read from. In a URL: "|wo". */
#define KJIT_REMOTE_WRITE_ONLY 0x2u
/** Only entries signed by a trusted key count; a runtime without such keys does not ask the store. In a URL: "|signed".
 */
#define KJIT_REMOTE_SIGNED 0x4u

/** What a function of a store answers. */
typedef enum kjit_remote_answer {
  KJIT_REMOTE_DONE = 0,       /**< done                                                                     */
  KJIT_REMOTE_ABSENT = 1,     /**< no such object; of a put that is a lease: another is there                */
  KJIT_REMOTE_FAILED = 2,     /**< it could not be done; after several of them the store is left alone a while */
  KJIT_REMOTE_UNSUPPORTED = 3 /**< the store cannot do this; it is not asked for it again                    */
} kjit_remote_answer;

/** Takes the next bytes of an object. Returns zero to go on; anything else ends the transfer: the store then returns
 * ::KJIT_REMOTE_FAILED. */
typedef int (*kjit_remote_write_fn)(void *user, const void *data, size_t bytes);

/**
 * A store. The struct is copied, its `user` is borrowed until `close` was called. All functions are called by several
 * threads at the same time, never with a lock of kjit's held; each must return within `timeout_ms`.
 *
 * `name` in their arguments is the object's: 64 lower-case hex digits, the digest of the kernel's key or of a lease.
 */
typedef struct kjit_remote_store {
  size_t struct_size;
  const char *title;   /**< for log lines, copied; NULL: "store"                                    */
  void *user;          /**< passed to each function                                                 */
  uint32_t flags;      /**< KJIT_REMOTE_*                                                           */
  uint32_t timeout_ms; /**< of one call, in all; 0: 2,000                                           */
  /** Give the object's bytes to `write`, in order. */
  kjit_remote_answer (*get)(void *user, const char *name, uint32_t timeout_ms, kjit_remote_write_fn write,
                            void *write_user);
  /** Store an object: whole or not at all, in place of one that is there. When `lease_seconds` is not 0, the object is
      a lease: one that is there stays (::KJIT_REMOTE_ABSENT), and a store that lets objects run out does so after as
      many seconds. A store that cannot put under this condition answers ::KJIT_REMOTE_UNSUPPORTED, or replaces. */
  kjit_remote_answer (*put)(void *user, const char *name, const void *data, size_t bytes, uint32_t lease_seconds,
                            uint32_t timeout_ms);
  void (*close)(void *user); /**< NULL: nothing to do                                                     */
  /** The members below may be NULL. Is the object there? */
  kjit_remote_answer (*exists)(void *user, const char *name, uint32_t timeout_ms);
  /** Remove an object. Leases are removed, nothing else is; a store without this function has no leases. */
  kjit_remote_answer (*remove)(void *user, const char *name, uint32_t timeout_ms);
  /** Why a call failed last, for log lines: writes one line without a newline into `text` of `bytes`, at least 1. */
  void (*why)(void *user, char *text, size_t bytes);
} kjit_remote_store;

/** What kjit_remote_check() and kjit_remote_push() count. */
typedef struct kjit_remote_report {
  size_t struct_size;
  uint64_t entries; /**< looked at                                                                   */
  uint64_t present; /**< that the stores have, sound and signed as asked                              */
  uint64_t missing; /**< that no store has                                                           */
  uint64_t refused; /**< that a store has, but damaged, unsigned or signed by an unknown key          */
  uint64_t failed;  /**< where no store answered                                                     */
  uint64_t written; /**< by kjit_remote_push()                                                       */
} kjit_remote_report;

/**
 * Read every entry of the user's folder from the stores and check it there.
 * @param      runtime  the runtime
 * @param[out] report   `struct_size` must be set
 * @retval KJIT_OK  whatever was counted
 * @retval KJIT_ERR_INVALID_ARG
 * @retval KJIT_ERR_UNSUPPORTED  the runtime has no remote store
 * @retval KJIT_ERR_IO, KJIT_ERR_NOT_FOUND  there is no cache folder, or it cannot be read
 * @retval KJIT_ERR_NO_MEMORY
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_remote_check(kjit_runtime *runtime, kjit_remote_report *report,
                                                      kjit_error *error);

/**
 * Write every sound entry of the user's folder to the stores that may be written, signed when the runtime has a signing
 * key. An entry that a store has, sound and signed by a trusted key, is left as it is. Waits until all is written.
 * @param      runtime  the runtime
 * @param[out] report   `struct_size` must be set
 * @retval KJIT_OK  whatever was counted
 * @retval KJIT_ERR_INVALID_ARG
 * @retval KJIT_ERR_UNSUPPORTED  the runtime has no remote store
 * @retval KJIT_ERR_IO, KJIT_ERR_NOT_FOUND  there is no cache folder, or it cannot be read
 * @retval KJIT_ERR_NO_MEMORY
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_remote_push(kjit_runtime *runtime, kjit_remote_report *report,
                                                     kjit_error *error);

#ifdef __cplusplus
}
#endif
#endif
