// Finds the key blocks that each tile of an attention variant visits: attention_block_lists in params.h.
//
//   state(tile, block)   from kjit_variant_block(), which evaluates the mask on ranges of queries and keys and may say
//                        "partial" of what is none; the smaller the ranges the rarer, so a block is looked at in
//                        aligned pieces of 64 queries x 16 keys, one a thread
//   one side             what the mask computes from the keys of a piece alone, or from its queries alone, such as the
//                        range of a tensor's elements, is computed once: most of the loads. A piece of keys is looked
//                        at for all of the tile's queries first, and for 64 at a time where that does not decide it
//   given states         where the caller gave a map of states, each of its blocks counts as the map says; blocks that
//                        are partial there are judged by the mask
//
//   keep words           of partial blocks, as far as there is memory for them, are written for the consumers of the
//                        attention kernel, of which one for each head would judge the same scores otherwise; only
//                        pieces that are partial are judged key by key
//
// Grid      (query tiles * writers, lists along the heads, lists along the batch): all writers of a tile find the same,
//           share the keep words, and the first one writes the entries
// Threads   LIST_THREADS, in rounds of kRound key blocks, from the last to the first: one thread for each block finds
//           what is known of it without the mask; then all threads share the pieces of the other blocks; then one
//           thread for each block writes its entry, and all threads share the keep words
// Output    the entries of blocks that are not empty, in that order, and their number, which is at least 1; keep words;
//           the order of tiles (block_list_order.cuh); where there is a counter for it, that a list is there
// Launches  the attention kernel behind it may be a programmatic dependent, and so may this one be of
// attention_block_map
#define KJIT_RANGE_BY_16 1 // before the first header that includes kjit/attention/variant_real_ranges.h

#include <kjit/ptx/global.cuh>
#include <kjit/ptx/griddepcontrol.cuh>

#include "attention_variant/block_list_order.cuh"
#include "attention_variant/block_list_tile.cuh"
#include "attention_variant/block_list_words.cuh"

namespace {

// What a group of lanes found of a block, a piece of its keys each.
struct Finding {
  int sum = 0;                   // as shared.findings has it
  uint64_t seen = 0, unseen = 0; // as shared.seen and shared.unseen have it

  // Add what the lanes of `own`, which begin with the lane `first`, found of the which-th piece of the queries. All
  // lanes of a warp.
  __device__ void add(const Tile &tile, int which, int state, uint32_t own, int first) {
    const uint32_t is_seen = __ballot_sync(0xffffffffu, state == VARIANT_PARTIAL || state == VARIANT_FULL) & own;
    const uint32_t is_unseen = __ballot_sync(0xffffffffu, state == VARIANT_PARTIAL || state == VARIANT_EMPTY) & own;
    sum |= ((is_seen ? kSeen : 0) | (is_unseen ? kUnseen : 0)) << (tile.p.parts > 0 ? 2 * which : 0);
    if (tile.p.variant.lists.written == 0) return;
    seen |= (uint64_t)(is_seen >> first) << which * tile.p.key_pieces;
    unseen |= (uint64_t)(is_unseen >> first) << which * tile.p.key_pieces;
  }

  // Whether some of the tile's queries see some of the keys that were asked about.
  __device__ bool is_seen() const { return sum & kSeen * kEveryPart; }

  // One lane of the group. `known`: what was found of the block before.
  __device__ void keep(const Tile &tile, Shared &shared, int at, int known) const {
    shared.findings[at] = known | sum;
    if (tile.p.variant.lists.written == 0) return;
    shared.seen[at] = seen;
    shared.unseen[at] = unseen;
  }
};

// Keep the mask's side of all keys of a block, which may have keep words. All lanes of a warp, of which a group of them
// have a piece each of the block, the first ones with keys; `own`: the lanes of this one's group, `which`: its place
// there.
__device__ void keep_keys(const Tile &tile, Shared &shared, int at, bool may_be_written, kjit_variant_keys keys,
                          bool asked, uint32_t own, int which) {
  const int pieces = __popc(__ballot_sync(0xffffffffu, asked) & own), lane = threadIdx.x % kLanesPerWarp;
#pragma unroll 1
  for (int apart = 1; apart < tile.p.key_pieces; apart *= 2) {
    const kjit_variant_keys other = side_of_lane(keys, (lane + apart) % kLanesPerWarp);
    if (which + apart < pieces) keys = kjit_variant_join_keys(keys, other);
  }
  if (may_be_written && which == 0) shared.keys[at] = keys;
}

constexpr int kNoState = -1; // of a piece that is not there, or that is not asked for

// Keep the mask's sides of the tile's queries: of rows and of 32 of them at a time, one thread for a row, or of each
// piece. By the last threads, which have the fewest keys.
__device__ void keep_queries(const Tile &tile, Shared &shared, int head) {
  const kjit_variant_arguments &a = tile.p.variant.arguments;
  if (kRowsKept && tile.p.parts > 0) {
    const int row = (int)threadIdx.x - (LIST_THREADS - tile.p.parts * kPieceQueries);
    if (row < 0) return;
    const int query = variant::smaller(tile.q0 + row, tile.q1 - 1), lane = row % kLanesPerWarp;
    kjit_variant_queries side = kjit_variant_block_queries(a, tile.batch, head, query, query + 1);
    shared.rows[row] = side;
    for (int apart = 1; apart < kLanesPerWarp; apart *= 2)
      side = kjit_variant_join_queries(side, side_of_lane(side, lane ^ apart));
    if (lane == 0) shared.queries[row / kLanesPerWarp] = side;
    return;
  }
  for (int i = LIST_THREADS - 1 - (int)threadIdx.x; i < tile.query_pieces; i += LIST_THREADS) {
    int q0, q1;
    tile.queries_of(i, q0, q1);
    shared.queries[i] = kjit_variant_block_queries(a, tile.batch, head, q0, q1);
  }
}

// The side of pieces first to end - 1 of the queries, of which there are at most kMost. All sides are read at once: a
// loop would wait for each.
template <int kMost>
__device__ kjit_variant_queries queries_side(const Tile &tile, const Shared &shared, int first, int end) {
  const int sides = kRowsKept && tile.p.parts > 0 ? kPieceQueries / kLanesPerWarp : 1; // of a piece
  kjit_variant_queries side = shared.queries[first * sides];
#pragma unroll
  for (int i = 1; i < kMost; i++)
    side = kjit_variant_join_queries(side, shared.queries[variant::smaller(first * sides + i, end * sides - 1)]);
  return side;
}

// The state of a piece of keys for pieces first to end - 1 of the queries, of which `area` is: at most kMost sides.
template <int kMost>
__device__ int state_for(const Tile &tile, const Shared &shared, int head, const Area &area,
                         const kjit_variant_keys &keys, int first, int end) {
  if constexpr (kKept) return tile.piece_state(head, area, queries_side<kMost>(tile, shared, first, end), keys);
  return tile.piece_state(head, area, {}, keys);
}

// Ask the mask, for one head, about the blocks of a round that are not known: `blocks` of them from `last` down. A
// group of lanes has a block, each lane a piece of its keys.
__device__ void ask(const Tile &tile, Shared &shared, int head, int last, int blocks) {
  const kjit_variant_arguments &a = tile.p.variant.arguments;
  const int lane = threadIdx.x % kLanesPerWarp, warp = threadIdx.x / kLanesPerWarp;
  const int groups = tile.p.lane_blocks, group = lane * tile.p.inverse >> 16;
  const int first_lane = group * tile.p.key_pieces, which = lane - first_lane;
  const uint32_t own = ((1u << tile.p.key_pieces) - 1) << first_lane;
  const bool is_first = head == tile.first_head;
  for (int first = 0; first < blocks; first += LIST_THREADS / kLanesPerWarp * groups) {
    const int at = first + warp * groups + group;
    const bool exists = group < groups && at < blocks;
    const int known = !exists ? 0 : kFindsFirst || !is_first ? shared.findings[at] : tile.first_finding(last - at);
    Area area = {tile.q0, tile.q1, 0, 0};
    kjit_variant_keys keys = {};
    if (known & kUnknown) tile.keys_of(tile.area_of(last - at), which, area.k0, area.k1);
    const bool asked = area.k0 < area.k1;
    if (kKept && asked) keys = kjit_variant_block_keys(a, tile.batch, head, area.k0, area.k1);
    // Keys come first, so that what the mask reads of both sides is waited for once where it lies together.
    if (kKept && first == 0) {
      keep_queries(tile, shared, head);
      __syncthreads(); // the queries' sides are there
    }
    // What all queries say together is what each piece of them says, unless it is partial.
    int joined = VARIANT_PARTIAL;
    if (kKept && asked) joined = state_for<kQueryPieces>(tile, shared, head, area, keys, 0, tile.query_pieces);
    Finding finding;
#pragma unroll 1
    for (int i = 0; i < tile.query_pieces; i++) {
      int state = joined;
      tile.queries_of(i, area.q0, area.q1);
      if (asked && joined == VARIANT_PARTIAL && (!kKept || tile.query_pieces > 1))
        state = state_for<kPieceQueries / kLanesPerWarp>(tile, shared, head, area, keys, i, i + 1);
      finding.add(tile, i, asked ? state : kNoState, own, first_lane);
    }
    __syncwarp(); // all lanes have read what was known
    if (exists && which == 0) finding.keep(tile, shared, at, known);
    if constexpr (kRowsKept) {
      const bool may_be_written = tile.p.variant.lists.written > 0 && exists && finding.is_seen();
      if (__any_sync(0xffffffffu, may_be_written)) keep_keys(tile, shared, at, may_be_written, keys, asked, own, which);
    }
  }
  __syncthreads(); // the findings are there, and nobody reads the queries' sides any more
}

// The entries of a list, which all threads find together.
struct Entries {
  int *const out;
  const int most_written;
  int count = 0;                      // of entries so far
  int first_written = 0, writing = 0; // of those that have keep words: how many before this round, and of it

  // The entries of a round of blocks, one a thread.
  __device__ void add(const Tile &tile, Shared &shared, int last, int round) {
    const int at = threadIdx.x, lane = at % kLanesPerWarp, warp = at / kLanesPerWarp;
    const uint32_t below = (1u << lane) - 1;
    int entry = -1, parts = 0, before = count, written = first_written += writing;
    uint32_t found = 0, partial = 0;
    if (warp * kLanesPerWarp < round) {
      entry = tile.entry(last - at, shared.findings[at]);
      parts = tile.partial_parts(entry);
      found = __ballot_sync(0xffffffffu, entry >= 0);
      partial = __ballot_sync(0xffffffffu, parts != 0);
      if (lane == 0) shared.counts[warp] = __popc(partial) << 16 | __popc(found);
    }
    __syncthreads(); // the counts are there
#pragma unroll 1
    for (int i = 0; i * kLanesPerWarp < round; i++) {
      const int counts = shared.counts[i];
      count += counts & 0xffff;
      writing = (i == 0 ? 0 : writing) + (counts >> 16);
      if (i < warp) before += counts & 0xffff, written += counts >> 16;
    }
    writing = variant::smaller(writing, most_written - first_written);
    const int slot = written + __popc(partial & below);
    if (parts != 0 && slot < most_written) {
      entry += (VARIANT_WRITTEN - VARIANT_PARTIAL) * parts;
      shared.to_write[slot - first_written] = Shared::to_write_of(at, parts);
    }
    if (entry >= 0 && tile.writer == 0) out[before + __popc(found & below)] = entry;
  }
};

// Tell that this block of threads has written its part of a list. All threads.
__device__ void tell_made(const attention_block_lists &lists, int list) {
  if (lists.made == nullptr) return;
  __syncthreads(); // all threads have written theirs, which thread 0 tells of
  if (threadIdx.x == 0) atom_acq_rel_add(lists.made + list, 1);
}

} // namespace

extern "C" __global__ __launch_bounds__(LIST_THREADS, variant::kMasked ? 2 : 3) void attention_block_list(
    const __grid_constant__ attention_block_list_params p) {
  extern __shared__ __align__(16) unsigned char memory[];
  Shared &shared = *(Shared *)memory;
  const attention_block_lists &lists = p.variant.lists;
  const Tile tile(p);
  const int list = tile.batch * lists.batch_stride + tile.list_head * lists.head_stride + tile.tile;
  Entries entries{lists.entries + (int64_t)list * lists.capacity, lists.written};
  griddepcontrol_launch_dependents(); // the attention kernel begins meanwhile, and waits before it reads the lists
  if constexpr (variant::kMapped) griddepcontrol_wait(); // what attention_block_map writes is read from here on
  for (int last = lists.capacity - 1; last >= 0; last -= kRound) {
    const int round = variant::smaller(last + 1, kRound);
    if constexpr (kFindsFirst) {
      if (threadIdx.x < round) shared.findings[threadIdx.x] = tile.first_finding(last - (int)threadIdx.x);
      __syncthreads(); // what is known is there
    }
    if constexpr (variant::kMasked) {
      for (int head = 0; head < tile.heads; head++)
        ask(tile, shared, tile.first_head + head, last, round);
    }
    entries.add(tile, shared, last, round);
    if (entries.writing == 0) continue;
    __syncthreads(); // what is to be written is known
    write_words(tile, shared, list, last, entries.first_written, entries.writing);
    if (last >= kRound) __syncthreads(); // what is known of the round has been read before the next one's is written
  }
  if (tile.writer != 0) {
    tell_made(lists, list);
    return;
  }
  if (threadIdx.x == 0) {
    if (entries.count == 0) entries.out[0] = 0; // block 0, partial: no row sees a key of it, and the tile writes zeros
    lists.counts[list] = variant::larger(entries.count, 1);
  }
  tell_made(lists, list);
  if (lists.order != nullptr) write_order(tile, shared, list, variant::larger(entries.count, 1));
}
