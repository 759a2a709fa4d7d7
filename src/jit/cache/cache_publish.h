/* Publishing an entry in a cache folder: it appears whole or not at all, and the folder stays within its bounds. */
#ifndef KJIT_JIT_CACHE_CACHE_PUBLISH_H
#define KJIT_JIT_CACHE_CACHE_PUBLISH_H

#include "jit/cache/disk_cache.h"

/* Make the `bytes` bytes of `image` the entry `name`, replacing an older one. 0 or -errno: -EROFS for a folder that is
 * missing or read-only, -EFBIG for an entry larger than the bound, -EBUSY when the file "usage" stayed locked. A
 * builder goes on after a failure, because it has the bytes; the failure is logged. Thread-safe. */
int cache_publish(struct disk_cache *cache, const struct entry_name *name, const void *image, size_t bytes);

#endif
