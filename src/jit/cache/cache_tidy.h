/* What the first publish of a process does for the folder: the tag that keeps backups out, and a sweep of the files
 * that killed writers left behind. */
#ifndef KJIT_JIT_CACHE_CACHE_TIDY_H
#define KJIT_JIT_CACHE_CACHE_TIDY_H

#include "jit/cache/disk_cache.h"

/* Does its work at the first call for each `cache` and nothing later. Costs one listing of the small folder "tmp". */
void cache_tidy_once(struct disk_cache *cache);

#endif
