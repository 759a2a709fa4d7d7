/* One cache folder: looking entries up, checking them, and removing damaged ones. The user's folder and the site's
 * folder are one struct disk_cache each. Publishing is cache_publish.h. A failure here is counted and logged, and means
 * a miss to the request. */
#ifndef KJIT_JIT_CACHE_DISK_CACHE_H
#define KJIT_JIT_CACHE_DISK_CACHE_H

#include <stdbool.h>

#include <kjit/build.h>

#include "base/log.h"
#include "jit/cache/cache_counters.h"
#include "jit/cache/cache_dir.h"
#include "jit/cache/entry.h"
#include "jit/cache/entry_name.h"
#include "jit/key/key.h"

/* An entry in memory that this struct owns: `entry` points into `data`. */
struct entry_image {
  void *data; /* mem_free */
  size_t bytes;
  struct entry entry;
};

/* Filled in by its builder (builder_create.c). */
struct disk_cache {
  const struct file_ops *ops;
  const struct mem *mem;
  const struct log *log;
  struct cache_counters *counters;
  struct cache_dir dir;            /* dir.folder is -1 when there is no folder: every look-up is then a miss */
  kjit_origin origin;              /* KJIT_ORIGIN_USER or KJIT_ORIGIN_SITE */
  atomic_bool writable;            /* becomes false when the folder turns out to be read-only */
  atomic_bool tidied;              /* see cache_tidy.h */
  _Atomic uint64_t usage_stuck_at; /* the checksum in "usage" when a wait for its lock timed out; 0: none did */
  uint64_t max_bytes;              /* bounds; see cache_usage.h */
  uint64_t max_entries;
  uint64_t max_text_bytes; /* of callers' sources; 0: none are kept (text_store.h) */
  int64_t use_grain_s;     /* a use is recorded when the last record is at least this old */
};

/* Look an entry up. KJIT_OK; KJIT_ERR_NOT_FOUND for a miss, whatever its reason; KJIT_ERR_NO_MEMORY. A key without a
 * compiler is answered by the most recently used entry of the same request, whatever compiled it. With `refresh`
 * the file server is asked again, because another machine may just have published the entry. */
kjit_status disk_cache_get(struct disk_cache *cache, const struct key *key, bool refresh, struct entry_image *image);

/* Remove an entry that is damaged or was refused, and count it. With an `inode` it is removed only if it is still
 * that file, because another process may have replaced it by a sound one; 0 removes whatever has the name. */
void disk_cache_set_aside(struct disk_cache *cache, const struct entry_name *name, ino_t inode, const char *damage);

/* Read one entry and check it. 0; -errno; -EBADMSG with `damage` set (static storage) when it is no sound entry of that
 * name. `status` is that of the file, when it could be opened. */
int disk_cache_read(const struct disk_cache *cache, const struct entry_name *name, struct entry_image *image,
                    struct stat *status, const char **damage);

/* Read any file in entry format, without comparing its key with its name. `used` records the use (use_grain_s). */
int disk_cache_read_file(const struct disk_cache *cache, const char *path, struct entry_image *image,
                         struct stat *status, bool used, const char **damage);

/* Count and log a file operation that failed and was worked around. `code` is -errno. A folder that turns out to be
 * read-only is not written to again. */
void disk_cache_note(struct disk_cache *cache, const char *what, const char *where, int code);

void entry_image_finish(struct entry_image *image, const struct mem *mem);

#endif
