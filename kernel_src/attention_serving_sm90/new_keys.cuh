// New keys and values of a decoding call, which the attend pass itself appends (attention_serving_params.appends).
//
// The positions of new keys lie in one share of each (sequence, key head): nobody else reads them. The warps of the
// block of threads that has this share
//   1. write each new key, rotated where tables are given, and its value to the cache, while the share's first keys are
//      on their way (write()), and
//   2. when TMA has brought the block of keys that has these positions, copy them from the cache over it (place()):
//      what TMA read there is from before or after the first step, whichever came first.
// So the loads of keys wait for nothing, and no block of threads waits for another. A warp copies what it has written
// itself, so that ordinary loads see it.
#pragma once
#include <kjit/ptx/memory.cuh>
#include <kjit/ptx/tma.cuh>
#include <kjit/types.cuh>

#include "attention_serving_sm90/config.cuh"
#include "attention_serving_sm90/shared.cuh"

#include "attention_serving/new_row.cuh"

namespace append {

// Where there are no new keys, they are behind all keys.
constexpr int kNever = 0x7fffffff;

// The position of a sequence's first new key.
KJIT_DEVICE int first_new(const attention_serving_params &p, int sequence) {
  return p.appends ? p.used_k[sequence] : kNever;
}

// A (sequence, key head) whose new keys begin at position `first`. `warp` of `warps` take turns, row by row.
struct NewKeys {
  const attention_serving_params &p;
  const int sequence, head, first, warp, warps, lane;

  // Step 1, of the new keys among [from, to).
  KJIT_DEVICE void write(int from, int to) const {
#pragma unroll 1
    for (int i = warp; i < p.rows_new; i += warps) {
      int64_t in_k, in_v;
      if (first + i < from || first + i >= to || !locate(p, sequence, first + i, in_k, in_v)) continue;
      const NewRow row = {sequence, i};
      const Descales descales = descales_of(p, sequence, head);
      move_row(p, NewChunks(p, row, i, head), CacheRow(p.k, in_k + head * p.k_stride.head, descales.k),
               CacheRow(p.v, in_v + head * p.v_stride.head, descales.v), rotary_position(p, row), lane);
    }
    __syncwarp(); // a lane reads in step 2 what others have written
  }

  // Step 2, of the new keys among [from, to), which lie in a stage whose first key is `key`. All workers.
  KJIT_DEVICE void place(uint32_t keys, uint32_t values, int key, int from, int to) const {
#pragma unroll 1
    for (int i = warp; i < p.rows_new; i += warps) {
      int64_t in_k, in_v;
      if (first + i < from || first + i >= to || !locate(p, sequence, first + i, in_k, in_v)) continue;
      const int row = first + i - key;
      place_row<cfg::kHeadDim>(p.k, in_k + head * p.k_stride.head, keys, row);
      place_row<cfg::kHeadDimV>(p.v, in_v + head * p.v_stride.head, values, row);
    }
    fence_async_proxy(); // before the stage is multiplied, and before TMA writes it again
    cfg::sync_workers();
  }

private:
  // Copy a row of the cache to its row of a tile in shared memory, in bands whose 16-byte chunks are swizzled.
  template <int kColumns> KJIT_DEVICE void place_row(const void *base, int64_t element, uint32_t tile, int row) const {
    const Chunk *const from = (const Chunk *)((const char *)base + element * cfg::kCacheBytes);
#pragma unroll 1
    for (int i = lane; i < kColumns * cfg::kCacheBytes / kChunkBytes; i += kLanesPerWarp)
      st_shared_16(tile + i / 8 * cfg::kKeys * cfg::kRowBytes + row * cfg::kRowBytes + ((i % 8 ^ row % 8) << 4),
                   *(const Chunk *)(from + i));
  }
};

} // namespace append
