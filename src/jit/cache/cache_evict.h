/* Which entries go when the folder is full: the least recently used, by modification time, which the cache sets itself
 * at each use.
 *
 * Keys are digests, so each of the 256 shards is a fair sample of the whole. An eviction looks at as few shards as hold
 * EVICT_SAMPLE entries (at all of them in a small cache: then it is exact), and takes the oldest of what it saw, some
 * more than needed so that the next publishers need not look. Its cost does not grow with the cache. */
#ifndef KJIT_JIT_CACHE_CACHE_EVICT_H
#define KJIT_JIT_CACHE_CACHE_EVICT_H

#include "jit/cache/cache_usage.h"

/* The oldest eighth of a thousand is the oldest eighth of the whole within about a percent. */
#define EVICT_SAMPLE ((size_t)1024)
#define EVICT_EXACT  SIZE_MAX

struct evict_goal {
  uint64_t max_bytes, max_entries;
  size_t sample; /* EVICT_SAMPLE or EVICT_EXACT */
};

/* Remove entries until the block's totals are within the goal; both stay in step. `removed` may be NULL. 0 or -errno.
 * The account must be held. */
int cache_evict(struct disk_cache *cache, struct usage_block *block, const struct evict_goal *goal,
                struct usage_shard *removed);

/* Count the whole folder. 0 or -errno. */
int cache_evict_recount(struct disk_cache *cache, struct usage_block *block);

#endif
