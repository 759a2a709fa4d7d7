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

/** The user cache folder in use. Borrowed from the runtime; NULL when it runs from memory only. Thread-safe. */
KJIT_API const char *kjit_cache_path(const kjit_runtime *runtime);

/** One entry of the cache. Strings are borrowed for the callback's duration. */
typedef struct kjit_cache_entry {
  size_t struct_size;
  const char *key;         /**< 64 hex digits                                                         */
  const char *key_text;    /**< "" when damaged                                                       */
  const char *family;      /**< "flash_forward", "custom", …; "" when damaged                         */
  const char *label;       /**< what people call it: the short form, or the source's name             */
  const char *arch;        /**< "" when damaged                                                       */
  const char *entry;       /**< kernel name; "" when damaged                                          */
  const char *log;         /**< compiler's messages                                                   */
  uint64_t bytes;          /**< of the file                                                           */
  uint64_t cubin_bytes;
  int64_t last_used;       /**< seconds since 1970, by the cache's own record                         */
  uint32_t registers, spill_bytes, shared_bytes;
  double compile_ms;
  uint32_t origin;         /**< KJIT_ORIGIN_USER or KJIT_ORIGIN_SITE: which folder                    */
  int32_t status;          /**< KJIT_OK, or KJIT_ERR_CORRUPT                                          */
  const char *damage;      /**< what is wrong with it; "" when sound                                  */
} kjit_cache_entry;

/** Return nonzero to stop. */
typedef int (*kjit_cache_visit)(void *user, const kjit_cache_entry *entry);

/**
 * Visit every entry of the user folder, in no particular order. Reads each fully and checks it.
 * @retval KJIT_OK, KJIT_ERR_IO, KJIT_ERR_NO_MEMORY
 * @par Thread safety  Thread-safe; safe while other processes use the folder.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_cache_list(kjit_runtime *runtime, kjit_cache_visit visit, void *user,
                                                    kjit_error *error);

/**
 * Visit the entry whose key begins with `prefix` (at least 4 hex digits).
 * @retval KJIT_OK
 * @retval KJIT_ERR_NOT_FOUND    none
 * @retval KJIT_ERR_INVALID_ARG  not hex, too short, or several entries begin so
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_cache_show(kjit_runtime *runtime, const char *prefix, kjit_cache_visit visit,
                                                    void *user, kjit_error *error);

/** What a pass over the folder found. */
typedef struct kjit_cache_report {
  size_t struct_size;
  uint64_t entries;  /**< looked at                              */
  uint64_t bytes;    /**< their size                             */
  uint64_t damaged;  /**< of those, damaged                      */
  uint64_t removed;  /**< entries removed                        */
  uint64_t removed_bytes;
  uint64_t temporary_files; /**< left behind by killed writers: counted by verify, removed by prune and clear */
} kjit_cache_report;

#define KJIT_CACHE_REPAIR 0x1u /**< verify: remove what is damaged */

/** Check every entry. @retval KJIT_OK (see report->damaged), KJIT_ERR_IO. Thread-safe. */
KJIT_API KJIT_NODISCARD kjit_status kjit_cache_verify(kjit_runtime *runtime, uint32_t flags, kjit_cache_report *report,
                                                      kjit_error *error);

/** Remove the least recently used entries until at most `max_bytes` remain. @retval KJIT_OK, KJIT_ERR_IO. Thread-safe. */
KJIT_API KJIT_NODISCARD kjit_status kjit_cache_prune(kjit_runtime *runtime, uint64_t max_bytes,
                                                     kjit_cache_report *report, kjit_error *error);

/** Remove every entry. @retval KJIT_OK, KJIT_ERR_IO. Thread-safe. */
KJIT_API KJIT_NODISCARD kjit_status kjit_cache_clear(kjit_runtime *runtime, kjit_cache_report *report,
                                                     kjit_error *error);

#ifdef __cplusplus
}
#endif
#endif
