/* Going through the entries of a cache folder by name, while others publish and evict. */
#ifndef KJIT_JIT_CACHE_CACHE_WALK_H
#define KJIT_JIT_CACHE_CACHE_WALK_H

#include <stdbool.h>

#include "jit/cache/disk_cache.h"

/* `folder` is the descriptor of the entry's folder. A positive result stops the walk and is returned, a negative one
 * too. */
typedef int (*cache_walk_visit)(void *user, int folder, const struct entry_name *name);

/* 0, what the visitor stopped with, or -errno. What is no entry by its name is passed over. */
int cache_walk(struct disk_cache *cache, cache_walk_visit visit, void *user);

/* Which shards have a folder: one listing, instead of looking for 256 in a small cache. 0 or -errno. */
int cache_walk_present(struct disk_cache *cache, bool present[ENTRY_SHARDS]);
int cache_walk_shard(struct disk_cache *cache, unsigned shard, cache_walk_visit visit, void *user);

#endif
