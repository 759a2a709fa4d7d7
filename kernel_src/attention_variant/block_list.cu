// Finds the key blocks that each tile of an attention variant visits: attention_block_lists in params.h.
//
//   state(tile, block)   from kjit_variant_block(), which evaluates the mask on ranges of queries and keys and may say
//                        "partial" of a block that is none; so what is partial as a whole is looked at once more in
//                        aligned pieces of 64 queries x 16 keys
//   given states         where the caller gave a map of states, each of its blocks counts as the map says; blocks that
//                        are partial there are judged by the mask
//
// Grid      (query tiles, lists along the heads, lists along the batch)
// Threads   one warp: 32 key blocks at a time, from the last to the first, each lane one
// Output    the entries of blocks that are not empty, in that order, and their number, which is at least 1
#include <kjit/types.cuh>

#include "attention_variant/hooks.cuh"
#include "attention_variant/list_params.h"

using namespace kjit;

namespace {

enum { kPieceQueries = 64, kPieceKeys = 16, kNoState = -1 };

// Queries q0 to q1 - 1 and keys k0 to k1 - 1 of one head.
struct Area {
  int q0, q1, k0, k1;
};

// The state of both areas together; kNoState is that of no area.
__device__ int joined(int a, int b) {
  return a == kNoState || a == b ? b : b == kNoState ? a : VARIANT_PARTIAL;
}

__device__ int ask(const attention_variant_params &v, int batch, int head, const Area &area) {
  return variant::kMasked ? kjit_variant_block(v.arguments, batch, head, area.q0, area.q1, area.k0, area.k1)
                          : (int)VARIANT_FULL;
}

// The state of an area by the mask alone.
__device__ int masked_state(const attention_variant_params &v, int batch, int head, const Area &area) {
  int state = ask(v, batch, head, area);
  if (state != VARIANT_PARTIAL) return state;
  state = kNoState;
#pragma unroll 1
  for (int q = area.q0 / kPieceQueries * kPieceQueries; q < area.q1 && state != VARIANT_PARTIAL; q += kPieceQueries)
#pragma unroll 1
    for (int k = area.k0 / kPieceKeys * kPieceKeys; k < area.k1 && state != VARIANT_PARTIAL; k += kPieceKeys) {
      const Area piece = {variant::larger(q, area.q0), variant::smaller(q + kPieceQueries, area.q1),
                          variant::larger(k, area.k0), variant::smaller(k + kPieceKeys, area.k1)};
      state = joined(state, ask(v, batch, head, piece));
    }
  return state;
}

// The state of an area by the caller's map, and by the mask where the map leaves it to that.
__device__ int mapped_state(const attention_variant_params &v, int batch, int head, const Area &area) {
  const int rows = v.map.query_rows, keys = v.map.key_rows;
  int state = kNoState;
#pragma unroll 1
  for (int r = area.q0 / rows; r * rows < area.q1 && state != VARIANT_PARTIAL; r++)
#pragma unroll 1
    for (int c = area.k0 / keys; c * keys < area.k1 && state != VARIANT_PARTIAL; c++) {
      const Area part = {variant::larger(r * rows, area.q0), variant::smaller((r + 1) * rows, area.q1),
                         variant::larger(c * keys, area.k0), variant::smaller((c + 1) * keys, area.k1)};
      const int given =
          r < v.map.rows && c < v.map.columns ? variant::map_state(v, batch, head, r, c) : (int)VARIANT_EMPTY;
      state = joined(state, given == VARIANT_PARTIAL ? masked_state(v, batch, head, part) : given);
    }
  return state;
}

// The state of a key block for all rows of a tile. `list_head` counts heads as tiles do: packs, or query heads.
__device__ int block_state(const attention_block_list_params &p, int batch, int list_head, int tile, int block) {
  const kjit_variant_arguments &a = p.variant.arguments;
  const int end = variant::smaller((tile + 1) * p.tile_queries, a.seq_q);
  const Area area = {tile * p.tile_queries, end, block * p.key_rows,
                     variant::smaller((block + 1) * p.key_rows, a.seq_kv)};
  const int shift = a.seq_kv - a.seq_q + 1;
  if (p.causal && area.k0 >= end - 1 + shift) return VARIANT_EMPTY;
  const int first_head = list_head / p.packs * p.group + list_head % p.packs * p.packed;
  int state = kNoState;
#pragma unroll 1
  for (int i = 0; i < p.packed && state != VARIANT_PARTIAL; i++) {
    if (list_head % p.packs * p.packed + i >= p.group) break;
    const int head = first_head + i;
    state = joined(state, variant::kMapped ? mapped_state(p.variant, batch, head, area)
                                           : masked_state(p.variant, batch, head, area));
  }
  // Keys beyond the last one, and those beyond the diagonal, are cut off in partial blocks alone.
  const bool cut = (block + 1) * p.key_rows > a.seq_kv || (p.causal && area.k1 > area.q0 + shift);
  return state == VARIANT_FULL && cut ? (int)VARIANT_PARTIAL : state;
}

} // namespace

extern "C" __global__
__launch_bounds__(32) void attention_block_list(const __grid_constant__ attention_block_list_params p) {
  const attention_block_lists &lists = p.variant.lists;
  const int tile = blockIdx.x, list_head = blockIdx.y, batch = blockIdx.z, lane = threadIdx.x;
  const int list = batch * lists.batch_stride + list_head * lists.head_stride + tile;
  int *const entries = lists.entries + (int64_t)list * lists.capacity;
  const int blocks = ceil_div(p.variant.arguments.seq_kv, p.key_rows);
  int count = 0;
  for (int last = blocks - 1; last >= 0; last -= kLanesPerWarp) {
    const int block = last - lane;
    const int state = block >= 0 ? block_state(p, batch, list_head, tile, block) : (int)VARIANT_EMPTY;
    const uint32_t found = __ballot_sync(0xffffffffu, state != VARIANT_EMPTY);
    if (state != VARIANT_EMPTY)
      entries[count + __popc(found & ((1u << lane) - 1))] = 2 * block + (state == VARIANT_FULL);
    count += __popc(found);
  }
  if (lane != 0) return;
  if (count == 0) entries[0] = 0; // block 0, partial: no row sees a key of it, and the tile writes zeros
  lists.counts[list] = count == 0 ? 1 : count;
}
