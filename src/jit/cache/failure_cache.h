/* Failed compiles remembered on disk, with their log: a broken config does not compile again in each process that asks
 * for it. Same format as entries, in the folder "failed"; an answer expires by the file's age. */
#ifndef KJIT_JIT_CACHE_FAILURE_CACHE_H
#define KJIT_JIT_CACHE_FAILURE_CACHE_H

#include "jit/cache/disk_cache.h"

/* KJIT_OK with the failure's image; KJIT_ERR_NOT_FOUND; KJIT_ERR_NO_MEMORY. `age_s`: how long ago it failed. */
kjit_status failure_cache_get(struct disk_cache *cache, const struct key *key, int64_t lifetime_s,
                              struct entry_image *image, int64_t *age_s);

/* Remember; removes what has expired, and the oldest beyond a bound. */
void failure_cache_put(struct disk_cache *cache, const struct entry_name *name, const void *image, size_t bytes,
                       int64_t lifetime_s);

/* Remove what is at least this old. 0 or -errno. */
int failure_cache_sweep(struct disk_cache *cache, int64_t lifetime_s);

#endif
