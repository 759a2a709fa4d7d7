/* XXH3: hashes for tables in memory and checksums of files. They guard against accidents only, because anybody can make
 * other bytes with the same value. Where that matters, use base/digest.h. */
#ifndef KJIT_BASE_HASH_H
#define KJIT_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct hash_128 {
  uint64_t low, high;
};

/* XXH3-64 of `bytes` bytes, without a seed: the same on every machine. */
uint64_t hash_64(const void *data, size_t bytes);

/* XXH3-128 of `bytes` bytes, without a seed: the same on every machine. */
struct hash_128 hash_128(const void *data, size_t bytes);

#endif
