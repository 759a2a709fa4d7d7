/* The cache folder's own account of what it holds: the file "usage", one small block with bytes and entries per shard,
 * and the persistent statistics. It bounds the folder: publishing makes room first, under the block's lock, so that the
 * bound holds at every moment and not only on average.
 *
 * The block is a help, not the truth: one that is missing or damaged is counted anew, and every shard that an eviction
 * looks at is corrected. Nothing is scanned before that. */
#ifndef KJIT_JIT_CACHE_CACHE_USAGE_H
#define KJIT_JIT_CACHE_CACHE_USAGE_H

#include "jit/cache/disk_cache.h"
#include "jit/cache/temp_file.h"

struct usage_shard {
  uint64_t bytes, entries;
};

/* As it stands on disk, in the machine's byte order: another order reads as damage and is counted anew. */
struct usage_block {
  uint64_t magic;
  uint64_t cursor;     /* shard where the next eviction begins to look */
  uint64_t counts[32]; /* by enum cache_counter */
  struct usage_shard shards[ENTRY_SHARDS];
  uint64_t checksum; /* XXH3-64 of all before */
};
_Static_assert(CACHE_COUNTERS <= 32, "every counter has its place in the block");

/* The account, held: nobody else publishes or evicts meanwhile. */
struct cache_usage {
  struct disk_cache *cache;
  int file;
  struct usage_block block;
};

/* 0; -EBUSY when others held it for longer than anybody should, at once if they hold it since a call that waited in
 * vain; else -errno. Adds this process's statistics. */
int cache_usage_open(struct cache_usage *usage, struct disk_cache *cache);
int cache_usage_write(struct cache_usage *usage);
void cache_usage_be_patient(
    struct disk_cache *cache);                     /* somebody asked for this in person: wait, whatever was before */
void cache_usage_close(struct cache_usage *usage); /* without writing; accepts a closed one */

/* Read the block without holding it; all zero when there is none. */
void cache_usage_peek(struct disk_cache *cache, struct usage_block *block);

struct usage_shard cache_usage_total(const struct usage_block *block);

/* Rename `temp`, of `bytes` bytes, to `name` in `folder`, evicting what must go before that. 0 or -errno: -EFBIG for an
 * entry larger than the bound, -EBUSY as above. */
int cache_usage_publish(struct disk_cache *cache, struct temp_file *temp, int folder, const struct entry_name *name,
                        size_t bytes);

/* Write this process's statistics, if it has any that are not written. */
void cache_usage_flush(struct disk_cache *cache);

#endif
