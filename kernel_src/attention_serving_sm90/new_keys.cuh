// New keys and values of a decoding call, which the kernel of few tiles appends itself.
//
// The positions of new keys lie in one part of each tile, and nobody else reads them. The warps of the block of threads
// that has this part
//   1. write each new key, rotated where tables are given, and its value to the cache and to shared memory, with TMA
//      while the first keys are on their way (write()), and
//   2. when the block of keys that has these positions has been loaded, copy them over it (place()): what was loaded
//      there is from before or after the first step, whichever came first.
// So the loads by TMA wait for nothing, and no block of threads waits for another.
#pragma once
#include <kjit/ptx/memory.cuh>
#include <kjit/ptx/tma.cuh>
#include <kjit/types.cuh>

#include "attention_serving_sm90/config.cuh"

#include "attention_serving/new_row.cuh"

namespace append {

// Where there are no new keys, they are behind all keys.
constexpr int kNever = 0x7fffffff;

// A row of the cache, and the same in shared memory.
struct KeptRow {
  CacheRow cache;
  Chunk *kept;

  KJIT_DEVICE void put(int index, const Chunk &chunk) const {
    cache.put(index, chunk);
    kept[index] = chunk;
  }
};

// A (sequence, key head) whose new keys begin at position `first`. The warps take turns, row by row: `turn` of `turns`.
struct NewKeys {
  static constexpr int kKeyChunks = cfg::kHeadDim / kChunkElements, kChunks = cfg::kKeptRowBytes / kChunkBytes;

  const attention_serving_params &p;
  Chunk *const kept; // shared memory: each new key, and behind it its value
  const int sequence, head, first, turn, turns, lane;

  // Step 1, of the new keys among [from, to). Where the cache has no page for a key, zeros are loaded, and
  // written here.
  KJIT_DEVICE void write(int from, int to) const {
#pragma unroll 1
    for (int i = turn; i < p.rows_new; i += turns) {
      if (first + i < from || first + i >= to) continue;
      Chunk *const k = kept + i * kChunks, *const v = k + kKeyChunks;
      int64_t in_k, in_v;
      if (!locate(p, sequence, first + i, in_k, in_v)) {
        for (int chunk = lane; chunk < kChunks; chunk += kLanesPerWarp)
          k[chunk] = {{0, 0, 0, 0}};
        continue;
      }
      const NewRow row = {sequence, i};
      move_row(p, NewChunks(p, row, i, head), KeptRow{CacheRow(p.k, in_k + head * p.k_stride.head, 1.0f), k},
               KeptRow{CacheRow(p.v, in_v + head * p.v_stride.head, 1.0f), v}, rotary_position(p, row), lane);
    }
    __syncwarp(); // a lane copies in step 2 what others have written
  }

  // Step 2, of the new keys among [from, to), which lie in a stage whose first key is `from`.
  KJIT_DEVICE void place(uint32_t keys, uint32_t values, int from, int to) const {
#pragma unroll 1
    for (int i = turn; i < p.rows_new; i += turns) {
      if (first + i < from || first + i >= to) continue;
#pragma unroll 1
      for (int chunk = lane; chunk < kChunks; chunk += kLanesPerWarp) {
        const bool is_key = chunk < kKeyChunks;
        place_chunk(is_key ? keys : values, first + i - from, is_key ? chunk : chunk - kKeyChunks,
                    kept[i * kChunks + chunk]);
      }
    }
    fence_async_proxy(); // before the stage is multiplied, and before TMA writes it again
  }

private:
  // A tile lies in bands whose 16-byte chunks are swizzled.
  static KJIT_DEVICE void place_chunk(uint32_t tile, int row, int index, const Chunk &chunk) {
    st_shared_16(tile + (index / 8 * cfg::kKeys + row) * cfg::kRowBytes + ((index % 8 ^ row % 8) << 4), chunk);
  }
};

} // namespace append
