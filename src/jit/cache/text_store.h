/* The texts of what was compiled from callers' sources, so that `kjit cache why` can name the line that changed.
 *
 * Files "texts/<hex digit>/<64 hex digits>" below the user's cache folder, named by the digest of what they hold. Each
 * of the 16 folders is bounded to a sixteenth of disk_cache.max_text_bytes, and its oldest files go first. A text is
 * believed only if its digest is its name. No look-up of a kernel reads one, so a lost text costs an explanation and
 * nothing else; therefore nothing here is synced to the disk. */
#ifndef KJIT_JIT_CACHE_TEXT_STORE_H
#define KJIT_JIT_CACHE_TEXT_STORE_H

#include "jit/cache/disk_cache.h"

/* Larger files are generated ones, in which a line says little. */
#define TEXT_STORE_FILE_MAX ((size_t)1 << 20)

/* Folders whose files are left out: the toolkit's, which change as a whole and say so by the compiler's version. */
struct text_store_skip {
  const char *const *dirs;
  size_t count;
};

/* Keep the texts of a compiled request. Failures are counted and logged. Thread-safe. */
void text_store_put(struct disk_cache *cache, const struct source_set *sources, const struct text_store_skip *skip);

/* The text with this digest, in 64 hex digits, as an array of `bytes` and a NUL (mem_free). KJIT_OK; KJIT_ERR_NOT_FOUND
 * for none and for a damaged one, which is removed; KJIT_ERR_NO_MEMORY. Thread-safe. */
kjit_status text_store_get(struct disk_cache *cache, const char *digest, size_t digits, char **text, size_t *bytes);

/* Remove all of them. 0 or -errno. */
int text_store_clear(struct disk_cache *cache);

#endif
