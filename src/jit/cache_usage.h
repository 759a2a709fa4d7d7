/* The cache folder's own account of what it holds: the file "usage", one small block with bytes and entries per shard,
 * and the persistent statistics. It bounds the folder: publishing makes room first, under the block's lock, so that the
 * bound holds at every moment and not only on average.
 *
 * The block is a help, not the truth: one that is missing or damaged is counted anew, and every shard that an eviction
 * looks at is corrected. Nothing is scanned before that. */
#ifndef KJIT_JIT_CACHE_USAGE_H
#define KJIT_JIT_CACHE_USAGE_H

#include "jit/disk_cache.h"
#include "jit/temp_file.h"

/* Rename `temp`, of `bytes` bytes, to `name` in `folder`, evicting what must go before that. 0 or -errno: -EFBIG for an
 * entry larger than the bound, -EBUSY when the account stayed locked for longer than anybody may hold it. */
int cache_usage_publish(struct disk_cache *cache, struct temp_file *temp, int folder, const struct entry_name *name,
                        size_t bytes);

#endif
