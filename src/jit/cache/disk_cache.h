/* One cache folder: entries read and checked, published whole, set aside when damaged. The user tier and the site tier
 * are one of these each. Failures here are counted and logged; what they mean for a request is a miss. */
#ifndef KJIT_JIT_CACHE_DISK_CACHE_H
#define KJIT_JIT_CACHE_DISK_CACHE_H

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

struct disk_cache {
  const struct file_ops *ops;
  const struct mem *mem;
  const struct log *log;
  struct cache_counters *counters;
  struct cache_dir dir;            /* dir.folder -1: there is no such tier, every look-up is a miss */
  kjit_origin origin;              /* KJIT_ORIGIN_USER or KJIT_ORIGIN_SITE */
  atomic_bool writable;            /* falls when the folder turns out to be read-only */
  atomic_bool tidied;              /* see cache_tidy.h */
  _Atomic uint64_t usage_stuck_at; /* the checksum in "usage" when a wait for its lock timed out; 0: none did */
  uint64_t max_bytes;              /* bounds; see cache_usage.h */
  uint64_t max_entries;
  int64_t use_grain_s; /* a use is recorded when the last record is at least this old */
};

/* Look for a key. KJIT_OK; KJIT_ERR_NOT_FOUND for a miss, of whatever reason; KJIT_ERR_NO_MEMORY. A key without a
 * compiler is answered by the most recently used entry of the same request, whatever compiled it. `refresh`: another
 * machine may just have published it, do not trust what the file system remembers. */
kjit_status disk_cache_get(struct disk_cache *cache, const struct key *key, _Bool refresh, struct entry_image *image);

/* Remove an entry that is damaged or was refused, and count it. `inode`: only if it is still that file, since another
 * process may have replaced it by a sound one; 0: whatever is there. */
void disk_cache_set_aside(struct disk_cache *cache, const struct entry_name *name, ino_t inode, const char *damage);

/* Read one entry and check it. 0; -errno; -EBADMSG with `damage` set (static storage) when it is no sound entry of that
 * name. `status` is that of the file, when it could be opened. */
int disk_cache_read(const struct disk_cache *cache, const struct entry_name *name, struct entry_image *image,
                    struct stat *status, const char **damage);

/* The same for any file in entry format, without asking whether it is the one that its name says. `used`: record it. */
int disk_cache_read_file(const struct disk_cache *cache, const char *path, struct entry_image *image,
                         struct stat *status, _Bool used, const char **damage);

/* Note a file operation that failed and was worked around. `code` is -errno. */
void disk_cache_note(struct disk_cache *cache, const char *what, const char *where, int code);

void entry_image_finish(struct entry_image *image, const struct mem *mem);

#endif
