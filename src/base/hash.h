/* XXH3 in one place: hashes of keys in memory, checksums of files. Not digests: who knows the bytes can make others
 * with the same value (base/digest.h is for those). */
#ifndef KJIT_BASE_HASH_H
#define KJIT_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct hash_128 {
  uint64_t low, high;
};

/* XXH3-64 of `bytes` bytes, without a seed: the same on every machine. */
uint64_t hash_64(const void *data, size_t bytes);

/* XXH3-128, likewise. */
struct hash_128 hash_128(const void *data, size_t bytes);

#endif
