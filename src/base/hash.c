/* XXH3 by xxHash, compiled into this file alone (XXH_INLINE_ALL), so that none of its symbols are shown and one
 * version serves all callers. No state; any thread may call. */
#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t hash_64(const void *data, size_t bytes) {
  return XXH3_64bits(data, bytes);
}

struct hash_128 hash_128(const void *data, size_t bytes) {
  const XXH128_hash_t hash = XXH3_128bits(data, bytes);
  return (struct hash_128){hash.low64, hash.high64};
}
