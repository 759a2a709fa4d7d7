/* The file "usage" of a cache folder: one small block that says how many bytes and entries each shard holds, and the
 * persistent statistics. It bounds the folder: a publisher makes room under the file's lock before it renames its
 * entry, so the bound holds at every moment and not only on average.
 *
 * Life cycle of a struct cache_usage:
 *
 *   cache_usage_open()       lock the file, read the block (or count the folder), add this process's statistics
 *   cache_usage_make_room()  evict until an entry of a given size fits           any number of times, in any order;
 *   cache_evict()            evict to another goal                               both change usage.block.totals
 *   cache_usage_write()      write the block; whatever is not written is lost
 *   cache_usage_close()      unlock
 *
 * Between open and close no other thread or process publishes or evicts. cache_usage_peek() and cache_usage_flush() do
 * the whole cycle themselves.
 *
 * The block is a help, not the truth: a missing or damaged one is replaced by a count of the whole folder, and every
 * shard that an eviction looks at is corrected. Nothing is scanned before that. */
#ifndef KJIT_JIT_CACHE_CACHE_USAGE_H
#define KJIT_JIT_CACHE_CACHE_USAGE_H

#include "jit/cache/cache_evict.h"

/* As it lies on disk, in the machine's byte order. A machine of the other order reads it as damaged and counts anew. */
struct usage_block {
  uint64_t magic;
  uint64_t counts[32]; /* indexed by enum cache_counter */
  struct cache_totals totals;
  uint64_t checksum; /* XXH3-64 of all before it */
};
_Static_assert(CACHE_COUNTERS <= 32, "the block has room for every counter");

/* The block while its file is locked. */
struct cache_usage {
  struct disk_cache *cache;
  int file; /* locked; -1 when closed */
  struct usage_block block;
};

/* 0; -EBUSY when another holder kept the lock for too long (cache_usage.c says how long that is), and at once if an
 * earlier call of this process gave up and the holder has made no progress since; else -errno. */
int cache_usage_open(struct cache_usage *usage, struct disk_cache *cache);
int cache_usage_write(struct cache_usage *usage);
void cache_usage_close(struct cache_usage *usage); /* does not write; accepts a closed one */

/* Evict until an entry of `bytes` bytes fits within the folder's bounds. 0 or -errno. */
int cache_usage_make_room(struct cache_usage *usage, uint64_t bytes);

/* Make the next cache_usage_open() wait even if an earlier one gave up. For commands, where a person asked for the
 * change and a repeated wait is better than an error. */
void cache_usage_be_patient(struct disk_cache *cache);

/* Read the block without its lock; all zero when there is none or it is damaged. */
void cache_usage_peek(struct disk_cache *cache, struct usage_block *block);

/* Write this process's statistics, if any have changed since they were last written. */
void cache_usage_flush(struct disk_cache *cache);

#endif
