// What a call with few tiles does before it multiplies, where it appends new keys or rotates Q (one_part.cuh): rotate
// the rows of Q, on their way to shared memory, and write the new keys (new_keys.cuh). Each warp that multiplies has
// the rows of Q that it will hold in registers; new keys are written by all of them but one that loads.
#pragma once
#include "attention_serving_sm90/new_keys.cuh"
#include "attention_serving_sm90/part.cuh"

#include "attention_serving/rotary.cuh"

namespace append {

// The turn of a warp to write new keys: its first warp has other work, and so comes last.
KJIT_DEVICE int turn(int warp) {
  return cfg::kLoader - 1 - warp;
}

// What moves the new keys of a tile: the warps but the loader's, the first of which has other work, and so comes
// last.
KJIT_DEVICE append::NewKeys new_keys(const attention_serving_one_part_params &p, const Part &part, char *work,
                                     int first, int warp, int lane) {
  return {p.all, (Chunk *)(work + cfg::kKeptAt), part.sequence, part.head, first, turn(warp), cfg::kLoader, lane};
}

KJIT_DEVICE char *turned_row(char *work, int row) {
  return work + cfg::kTurnedAt + row * cfg::kTurnedRowBytes;
}

// What calls with new keys do first: rotate the warp's rows of Q, on their way to shared memory, and write the new
// keys to the cache. It is no part of the kernel's own code, which lies in one piece for calls without new keys; and
// nothing of the accumulators lives yet.
__device__ __noinline__ void prepare(const attention_serving_one_part_params &p, Part part, char *work, int first,
                                     int warp, int lane) {
  const int rows = p.rows_q * p.group, left = rows - warp * 16;
  const int items = rotary::items(p.all, cfg::kHeadDim);
  if (p.rotates) {
#pragma unroll 1
    for (int i = lane; i < (left < 16 ? left : 16) * items; i += kLanesPerWarp) {
      const int row = warp * 16 + i / items, query = row / p.group, head = part.head * p.group + row % p.group;
      Chunk *const to = (Chunk *)turned_row(work, row);
      const int64_t from = part.sequence * p.q_stride.batch + query * p.q_stride.seq + head * p.q_stride.head;
      rotary::turn_item(p.all, (const Chunk *)((const char *)p.q + 2 * from), i % items,
                        rotary::position_of(p.all, part.sequence, query),
                        [&](int index, const Chunk &chunk) { to[index] = chunk; });
    }
    __syncwarp(); // other lanes read what a lane has written
  }
  const int end = smaller(part.to * cfg::kKeys, part.keys);
  if (end > first && warp != cfg::kLoader)
    new_keys(p, part, work, first, warp, lane).write(part.from * cfg::kKeys, end);
}

} // namespace append
