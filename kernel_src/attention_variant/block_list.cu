// Finds the key blocks that each tile of an attention variant visits: attention_block_lists in params.h.
//
//   state(tile, block)   from kjit_variant_block(), which evaluates the mask on ranges of queries and keys and may say
//                        "partial" of what is none; the smaller the ranges the rarer, so a block is looked at in
//                        aligned pieces of 64 queries x 16 keys, by a warp whose lanes take one each
//   given states         where the caller gave a map of states, each of its blocks counts as the map says; blocks that
//                        are partial there are judged by the mask
//
// Grid      (query tiles, lists along the heads, lists along the batch)
// Threads   LIST_THREADS: each warp finds the states of some of 32 key blocks, from the last to the first; then the
//           first warp writes the entries of these 32
// Output    the entries of blocks that are not empty, in that order, and their number, which is at least 1
#include <kjit/types.cuh>

#include "attention_variant/hooks.cuh"
#include "attention_variant/list_params.h"

using namespace kjit;

namespace {

enum { kPieceQueries = 64, kPieceKeys = 16, kWarps = LIST_THREADS / kLanesPerWarp };

// Queries q0 to q1 - 1 and keys k0 to k1 - 1 of one head.
struct Area {
  int q0, q1, k0, k1;
};

// What was found of an area so far.
struct Finding {
  bool any_seen = false, any_unseen = false;

  __device__ void add(int state) {
    any_seen |= state != VARIANT_EMPTY;
    any_unseen |= state != VARIANT_FULL;
  }
  // All lanes of a warp: what they found together.
  __device__ int state() const {
    const bool seen = __any_sync(0xffffffffu, any_seen), unseen = __any_sync(0xffffffffu, any_unseen);
    return !seen ? VARIANT_EMPTY : unseen ? VARIANT_PARTIAL : VARIANT_FULL;
  }
};

__device__ int masked_state(const attention_variant_params &v, int batch, int head, const Area &area) {
  if constexpr (!variant::kMasked) return VARIANT_FULL;
  return kjit_variant_block(v.arguments, batch, head, area.q0, area.q1, area.k0, area.k1);
}

// Add what the caller's map says of an area, and what the mask says where the map leaves it to that.
__device__ void add_mapped(Finding &finding, const attention_variant_params &v, int batch, int head, const Area &area) {
  const int rows = v.map.query_rows, keys = v.map.key_rows;
#pragma unroll 1
  for (int r = area.q0 / rows; r * rows < area.q1; r++)
#pragma unroll 1
    for (int c = area.k0 / keys; c * keys < area.k1; c++) {
      const Area part = {variant::larger(r * rows, area.q0), variant::smaller((r + 1) * rows, area.q1),
                         variant::larger(c * keys, area.k0), variant::smaller((c + 1) * keys, area.k1)};
      const int given =
          r < v.map.rows && c < v.map.columns ? variant::map_state(v, batch, head, r, c) : (int)VARIANT_EMPTY;
      finding.add(given == VARIANT_PARTIAL ? masked_state(v, batch, head, part) : given);
    }
}

// The state of an area of one head. All lanes of a warp.
__device__ int area_state(const attention_variant_params &v, int batch, int head, const Area &area, int lane) {
  const int first_q = area.q0 / kPieceQueries, first_k = area.k0 / kPieceKeys;
  const int across = ceil_div(area.k1, kPieceKeys) - first_k;
  const int pieces = (ceil_div(area.q1, kPieceQueries) - first_q) * across;
  Finding finding;
#pragma unroll 1
  for (int i = lane; i < pieces; i += kLanesPerWarp) {
    const int q = (first_q + i / across) * kPieceQueries, k = (first_k + i % across) * kPieceKeys;
    const Area piece = {variant::larger(q, area.q0), variant::smaller(q + kPieceQueries, area.q1),
                        variant::larger(k, area.k0), variant::smaller(k + kPieceKeys, area.k1)};
    if constexpr (variant::kMapped)
      add_mapped(finding, v, batch, head, piece);
    else
      finding.add(masked_state(v, batch, head, piece));
  }
  __syncwarp();
  return finding.state();
}

// The state of a key block for all rows of a tile. `list_head` counts heads as tiles do: packs, or query heads. All
// lanes of a warp.
__device__ int block_state(const attention_block_list_params &p, int batch, int list_head, int tile, int block,
                           int lane) {
  const kjit_variant_arguments &a = p.variant.arguments;
  const int end = variant::smaller((tile + 1) * p.tile_queries, a.seq_q);
  const Area area = {tile * p.tile_queries, end, block * p.key_rows,
                     variant::smaller((block + 1) * p.key_rows, a.seq_kv)};
  const int shift = a.seq_kv - a.seq_q + 1;
  if (p.causal && area.k0 >= end - 1 + shift) return VARIANT_EMPTY;
  const int first_head = list_head / p.packs * p.group + list_head % p.packs * p.packed;
  const int heads = variant::smaller(p.packed, p.group - list_head % p.packs * p.packed);
  Finding finding;
#pragma unroll 1
  for (int i = 0; i < heads; i++)
    finding.add(area_state(p.variant, batch, first_head + i, area, lane));
  const int state = finding.state();
  // Keys beyond the last one, and those beyond the diagonal, are cut off in partial blocks alone.
  const bool cut = (block + 1) * p.key_rows > a.seq_kv || (p.causal && area.k1 > area.q0 + shift);
  return state == VARIANT_FULL && cut ? (int)VARIANT_PARTIAL : state;
}

} // namespace

extern "C" __global__
__launch_bounds__(LIST_THREADS) void attention_block_list(const __grid_constant__ attention_block_list_params p) {
  extern __shared__ int states[]; // of the 32 key blocks `last`, `last` - 1, ...
  const attention_block_lists &lists = p.variant.lists;
  const int tile = blockIdx.x, list_head = blockIdx.y, batch = blockIdx.z;
  const int warp = threadIdx.x / kLanesPerWarp, lane = threadIdx.x % kLanesPerWarp;
  const int list = batch * lists.batch_stride + list_head * lists.head_stride + tile;
  int *const entries = lists.entries + (int64_t)list * lists.capacity;
  int count = 0;
  for (int last = ceil_div(p.variant.arguments.seq_kv, p.key_rows) - 1; last >= 0; last -= kLanesPerWarp) {
    for (int i = warp; i < kLanesPerWarp; i += kWarps) {
      const int state = last - i >= 0 ? block_state(p, batch, list_head, tile, last - i, lane) : (int)VARIANT_EMPTY;
      if (lane == 0) states[i] = state;
    }
    __syncthreads(); // the states are there
    if (warp == 0) {
      const int state = states[lane];
      const uint32_t found = __ballot_sync(0xffffffffu, state != VARIANT_EMPTY);
      if (state != VARIANT_EMPTY)
        entries[count + __popc(found & ((1u << lane) - 1))] = 2 * (last - lane) + (state == VARIANT_FULL);
      count += __popc(found);
    }
    __syncthreads(); // the states have been read
  }
  if (threadIdx.x != 0) return;
  if (count == 0) entries[0] = 0; // block 0, partial: no row sees a key of it, and the tile writes zeros
  lists.counts[list] = count == 0 ? 1 : count;
}
