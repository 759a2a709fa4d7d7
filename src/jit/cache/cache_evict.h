/* Which entries go when the folder is full: the least recently used, by modification time, which the cache sets itself
 * at each use.
 *
 * Keys are digests, so each of the 256 shards is a fair sample of the whole. An eviction looks at as few shards as hold
 * EVICT_SAMPLE entries (at all of them in a small cache: then it is exact), and takes the oldest of what it saw, some
 * more than needed so that the next publishers need not look. Its cost does not grow with the cache.
 *
 * The functions work on totals that the caller keeps. cache_usage.h keeps them in the folder's file "usage", whose lock
 * the caller holds, because two evictions at once would both remove entries for the same need. */
#ifndef KJIT_JIT_CACHE_CACHE_EVICT_H
#define KJIT_JIT_CACHE_CACHE_EVICT_H

#include "jit/cache/disk_cache.h"

/* The oldest eighth of a thousand is the oldest eighth of the whole within about a percent. */
#define EVICT_SAMPLE ((size_t)1024)
#define EVICT_EXACT  SIZE_MAX

/* How much one shard holds, or the whole folder. */
struct cache_amount {
  uint64_t bytes, entries;
};

/* What the folder holds, by shard. Part of the file "usage" as it lies on disk. */
struct cache_totals {
  uint64_t cursor; /* the shard where the next eviction begins to look, so that all shards get their turn */
  struct cache_amount shards[ENTRY_SHARDS];
};

struct evict_goal {
  uint64_t max_bytes, max_entries;
  size_t sample; /* EVICT_SAMPLE or EVICT_EXACT */
};

/* The sum over the shards. */
struct cache_amount cache_totals_sum(const struct cache_totals *totals);

/* Remove entries until the totals are within the goal. The totals follow the folder: what is removed is subtracted, and
 * every shard that was looked at is set to what it holds. `removed` (may be NULL) is what went. 0 or -errno. */
int cache_evict(struct disk_cache *cache, struct cache_totals *totals, const struct evict_goal *goal,
                struct cache_amount *removed);

/* Set the totals to what the whole folder holds. 0 or -errno. */
int cache_evict_recount(struct disk_cache *cache, struct cache_totals *totals);

#endif
