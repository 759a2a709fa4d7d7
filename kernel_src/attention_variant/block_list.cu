// Finds the key blocks that each tile of an attention variant visits: attention_block_lists in params.h.
//
//   state(tile, block)   from kjit_variant_block(), which evaluates the mask on ranges of queries and keys and may say
//                        "partial" of what is none; the smaller the ranges the rarer, so a block is looked at in
//                        aligned pieces of 64 queries x 16 keys, one a thread
//   one side             what the mask computes from the keys of a piece alone, or from its queries alone, such as the
//                        range of a tensor's elements, is computed once: most of the loads. A piece of keys is looked at
//                        for all of the tile's queries first, and for 64 at a time where that does not decide it
//   given states         where the caller gave a map of states, each of its blocks counts as the map says; blocks that
//                        are partial there are judged by the mask
//
//   keep words           of partial blocks, as far as there is memory for them, are written for the consumers of the
//                        attention kernel, of which one for each head would judge the same scores otherwise; only pieces
//                        that are partial are judged key by key
//
// Grid      (query tiles * writers, lists along the heads, lists along the batch): all writers of a tile find the same,
//           share the keep words, and the first one writes the entries
// Threads   LIST_THREADS, in rounds of kRound key blocks, from the last to the first: one thread for each block finds
//           what is known of it without the mask; then all threads share the pieces of the other blocks; then the first
//           warp writes the entries, and all threads share the keep words
// Output    the entries of blocks that are not empty, in that order, and their number, which is at least 1; keep words
// Launches  the attention kernel behind it may be a programmatic dependent, and so may this one be of attention_block_map
#define KJIT_RANGE_BY_16 1 // before the first header that includes kjit/attention/variant_real_ranges.h

#include <kjit/ptx/griddepcontrol.cuh>
#include <kjit/types.cuh>

#include "attention_variant/hooks.cuh"
#include "attention_variant/list_params.h"

using namespace kjit;

namespace {

enum {
  kPieceQueries = 64,
  kPieceKeys = LIST_PIECE_KEYS,
  kRound = LIST_ROUND, // key blocks
  kQueryPieces = 8,    // most pieces of a tile's queries: tiles have at most 384 rows, of which some begin in a piece
  kGroupThreads = 128, // of a warpgroup, which computes a part's scores
  kWordKeys = 128,     // keys of which a thread has a word of scores
  kWordPieces = kWordKeys / kPieceKeys
};

// What was found of a block: some pair is seen, some is not, by two bits for each part of the tile's queries, of which
// there are at most three; the mask has to be asked.
enum { kSeen = 1, kUnseen = 2, kEveryPart = 1 + 4 + 16, kUnknown = 64 };

// Sides that are larger than this are computed again for each piece, as is what the map cuts into other pieces.
constexpr bool kKept = !variant::kMapped && sizeof(kjit_variant_keys) <= 32 && sizeof(kjit_variant_queries) <= 256;

// Queries q0 to q1 - 1 and keys k0 to k1 - 1 of one head.
struct Area {
  int q0, q1, k0, k1;
};

KJIT_DEVICE int state_of(int finding) {
  return !(finding & kSeen) ? VARIANT_EMPTY : finding & kUnseen ? VARIANT_PARTIAL : VARIANT_FULL;
}

KJIT_DEVICE int masked_state(const attention_variant_params &v, int batch, int head, const Area &area) {
  if constexpr (!variant::kMasked) return VARIANT_FULL;
  return kjit_variant_block(v.arguments, batch, head, area.q0, area.q1, area.k0, area.k1);
}

// What the caller's map and, where `ask`, the mask say of an area: a finding, with kUnknown where the mask was not
// asked and would have to be.
KJIT_DEVICE int mapped_finding(const attention_variant_params &v, int batch, int head, const Area &area, bool ask) {
  const int rows = v.map.query_rows, keys = v.map.key_rows;
  bool seen = false, unseen = false, unknown = false;
#pragma unroll 1
  for (int r = area.q0 / rows; r * rows < area.q1; r++)
#pragma unroll 1
    for (int c = area.k0 / keys; c * keys < area.k1; c++) {
      const Area part = {variant::larger(r * rows, area.q0), variant::smaller((r + 1) * rows, area.q1),
                         variant::larger(c * keys, area.k0), variant::smaller((c + 1) * keys, area.k1)};
      int state = r < v.map.rows && c < v.map.columns ? variant::map_state(v, batch, head, r, c) : (int)VARIANT_EMPTY;
      if (state == VARIANT_PARTIAL && variant::kMasked && !ask) {
        unknown = true;
        continue;
      }
      if (state == VARIANT_PARTIAL) state = masked_state(v, batch, head, part);
      seen |= state != VARIANT_EMPTY;
      unseen |= state != VARIANT_FULL;
    }
  if (unknown) return kUnknown;
  return (seen ? kSeen : 0) + (unseen ? kUnseen : 0);
}

// A tile's work.
struct Tile {
  const attention_block_list_params &p;
  const int batch, list_head, tile, writer;
  const int q0, q1;       // its queries
  const int query_pieces; // along them

  __device__ Tile(const attention_block_list_params &p)
      : p(p), batch(blockIdx.z), list_head(blockIdx.y), tile(blockIdx.x >> p.writer_bits),
        writer(blockIdx.x & ((1 << p.writer_bits) - 1)), q0(tile * p.tile_queries),
        q1(variant::smaller(q0 + p.tile_queries, p.variant.arguments.seq_q)),
        query_pieces(ceil_div(q1, kPieceQueries) - q0 / kPieceQueries) {}

  // The query heads of its rows: tiles count packs, or query heads.
  __device__ int first_head() const {
    return p.packs == 1 ? list_head * p.group : list_head / p.packs * p.group + list_head % p.packs * p.packed;
  }
  __device__ int heads() const {
    return p.packed == 1 ? 1 : variant::smaller(p.packed, p.group - list_head % p.packs * p.packed);
  }

  __device__ Area area_of(int block) const {
    return {q0, q1, block * p.key_rows, variant::smaller((block + 1) * p.key_rows, p.variant.arguments.seq_kv)};
  }
  __device__ int shift() const { return p.variant.arguments.seq_kv - p.variant.arguments.seq_q + 1; }

  // The which-th piece of a block's keys; empty where the block has fewer.
  __device__ void keys_of(const Area &area, int which, int &k0, int &k1) const {
    const int first = (area.k0 / kPieceKeys + which) * kPieceKeys;
    k0 = variant::larger(first, area.k0);
    k1 = variant::smaller(first + kPieceKeys, area.k1);
  }
  __device__ void queries_of(int which, int &first, int &end) const {
    const int piece = (q0 / kPieceQueries + which) * kPieceQueries;
    first = variant::larger(piece, q0);
    end = variant::smaller(piece + kPieceQueries, q1);
  }

  // What is known of a block without its mask.
  __device__ int first_finding(int block) const {
    if (block < 0) return kUnseen * kEveryPart;
    const Area area = area_of(block);
    if (p.causal && area.k0 >= q1 - 1 + shift()) return kUnseen * kEveryPart;
    if constexpr (!variant::kMapped) return kUnknown;
    int sum = 0;
    for (int i = 0; i < heads(); i++)
      sum |= mapped_finding(p.variant, batch, first_head() + i, area, false);
    return sum & kUnknown ? (int)kUnknown : sum * kEveryPart;
  }

  // A piece's state.
  __device__ int piece_state(int head, const Area &piece, const kjit_variant_queries &queries,
                             const kjit_variant_keys &keys) const {
    if constexpr (variant::kMapped) return state_of(mapped_finding(p.variant, batch, head, piece, true));
    if constexpr (!kKept) return masked_state(p.variant, batch, head, piece);
    return kjit_variant_block_meeting(p.variant.arguments, queries, keys, batch, head, piece.q0, piece.q1, piece.k0,
                                      piece.k1);
  }

  // A block's state for the queries from `first_query` on, of which `finding` is. Keys beyond the last one, and those
  // beyond the diagonal, are cut off in partial blocks alone.
  __device__ int state(int block, int finding, int first_query) const {
    const int found = state_of(finding);
    const bool cut = (block + 1) * p.key_rows > p.variant.arguments.seq_kv ||
                     (p.causal && area_of(block).k1 > first_query + shift());
    return found == VARIANT_FULL && cut ? (int)VARIANT_PARTIAL : found;
  }

  // A block's entry; -1: no row sees a key of it.
  __device__ int entry(int block, int finding) const {
    if (block < 0) return -1;
    if (p.parts == 0) {
      const int whole = state(block, finding, q0);
      return whole == VARIANT_EMPTY ? -1 : 2 * block + (whole == VARIANT_FULL);
    }
    int states = 0;
    for (int part = 0; part < p.parts; part++)
      if (q0 + part * kPieceQueries < q1)
        states |= state(block, finding >> 2 * part, q0 + part * kPieceQueries) << 2 * part;
    return states == 0 ? -1 : (block << 2 * p.parts) + states;
  }

  // Which parts of an entry are partial, by the lower bits of their states.
  __device__ int partial_parts(int entry) const {
    return entry < 0 || p.parts == 0 ? 0 : entry & ~(entry >> 1) & kEveryPart & ((1 << 2 * p.parts) - 1);
  }
};

struct Shared {
  int findings[kRound];                        // of the key blocks `last`, `last` - 1, ...
  uint64_t seen[kRound], unseen[kRound];       // what was found of their pieces, a bit each, where there are keep words
                                               // and the mask was asked
  int to_write[LIST_WRITTEN];                  // which of these blocks keep words are written for,
  int first_written, written;                  // as which of the list's, and how many
  kjit_variant_queries queries[kKept ? kQueryPieces : 1];
};
static_assert(sizeof(Shared) <= LIST_SHARED, "LIST_SHARED: what the host asks for is enough");

// What a group of lanes found of a block, a piece of its keys each.
struct Finding {
  int sum = 0;                    // as shared.findings has it
  uint64_t seen = 0, unseen = 0;  // as shared.seen and shared.unseen have it

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

  // One lane of the group.
  __device__ void keep(const Tile &tile, Shared &shared, int at) const {
    shared.findings[at] |= sum;
    if (tile.p.variant.lists.written == 0) return;
    shared.seen[at] = seen;
    shared.unseen[at] = unseen;
  }
};

constexpr int kNoState = -1; // of a piece that is not there, or that is not asked for

// The state of a piece for all of the tile's queries together, which says the same as those of the pieces of queries
// unless it is partial.
__device__ int joined_state(const Tile &tile, const Shared &shared, int head, const Area &area,
                            const kjit_variant_keys &keys) {
  if constexpr (!kKept) return VARIANT_PARTIAL;
  kjit_variant_queries queries = shared.queries[0];
  for (int i = 1; i < tile.query_pieces; i++)
    queries = kjit_variant_join_queries(queries, shared.queries[i]);
  return tile.piece_state(head, area, queries, keys);
}

// Ask the mask, for one head, about the blocks of a round that are not known: `blocks` of them from `last` down. A group
// of lanes has a block, each lane a piece of its keys.
__device__ void ask(const Tile &tile, Shared &shared, int head, int last, int blocks) {
  const kjit_variant_arguments &a = tile.p.variant.arguments;
  const int lane = threadIdx.x % kLanesPerWarp, warp = threadIdx.x / kLanesPerWarp;
  const int groups = tile.p.lane_blocks, group = lane * tile.p.inverse >> 16;
  const int first_lane = group * tile.p.key_pieces, which = lane - first_lane;
  const uint32_t own = ((1u << tile.p.key_pieces) - 1) << first_lane;
  if constexpr (kKept) {
    // By the last threads, which have the fewest keys.
    for (int i = LIST_THREADS - 1 - (int)threadIdx.x; i < tile.query_pieces; i += LIST_THREADS) {
      int q0, q1;
      tile.queries_of(i, q0, q1);
      shared.queries[i] = kjit_variant_block_queries(a, tile.batch, head, q0, q1);
    }
  }
  for (int first = 0; first < blocks; first += LIST_THREADS / kLanesPerWarp * groups) {
    const int at = first + warp * groups + group;
    bool asked = group < groups && at < blocks && shared.findings[at] & kUnknown;
    Area area = {tile.q0, tile.q1, 0, 0};
    kjit_variant_keys keys = {};
    if (asked) tile.keys_of(tile.area_of(last - at), which, area.k0, area.k1);
    asked = asked && area.k0 < area.k1;
    if (kKept && asked) keys = kjit_variant_block_keys(a, tile.batch, head, area.k0, area.k1);
    if (kKept && first == 0) __syncthreads(); // the queries' sides are there
    const int joined = asked ? joined_state(tile, shared, head, area, keys) : kNoState;
    Finding finding;
#pragma unroll 1
    for (int i = 0; i < tile.query_pieces; i++) {
      int state = joined;
      tile.queries_of(i, area.q0, area.q1);
      if (joined == VARIANT_PARTIAL && (!kKept || tile.query_pieces > 1))
        state = tile.piece_state(head, area, shared.queries[kKept ? i : 0], keys);
      finding.add(tile, i, state, own, first_lane);
    }
    if (asked && which == 0) finding.keep(tile, shared, at);
  }
  __syncthreads(); // the findings are there, and nobody reads the queries' sides any more
}

// One keep word: the index-th of the at-th block of the round. Rows have one word or two.
__device__ uint32_t keep_word(const Tile &tile, const Shared &shared, int block, int at, int index) {
  const attention_variant_params &v = tile.p.variant;
  const int row_bits = VARIANT_WORDS_OF_ROW(tile.p.key_rows) - 1, word = index & row_bits, own = index >> row_bits;
  const int part = own / (2 * kGroupThreads), thread = own / 2 % kGroupThreads, lane = thread % kLanesPerWarp;
  const int query = tile.q0 + part * kPieceQueries + thread / kLanesPerWarp * 16 + lane / 4 + own % 2 * 8;
  const int limit = tile.p.causal ? variant::smaller(query + tile.shift(), v.arguments.seq_kv) : v.arguments.seq_kv;
  const variant::Row row(v, tile.batch, tile.first_head(), query, limit);
  const int first = block * tile.p.key_rows + word * kWordKeys + lane % 4 * 2;
  const bool is_asked = shared.findings[at] & kUnknown;
  const int pieces = tile.p.key_rows / kPieceKeys, first_piece = part * pieces + word * kWordPieces;
  const int count = variant::smaller(pieces - word * kWordPieces, kWordPieces);
  variant::KeepWords<kWordKeys / 8> keep = {};
#pragma unroll 1
  for (int piece = 0; piece < count; piece++) {
    const bool seen = !is_asked || shared.seen[at] >> (first_piece + piece) & 1;
    const bool unseen = !is_asked || shared.unseen[at] >> (first_piece + piece) & 1;
    uint32_t bits = seen ? 15 : 0;
    if (seen && unseen) {
#pragma unroll
      for (int i = 0; i < 4; i++)
        if (!variant::sees(v, row, first + piece * kPieceKeys + i / 2 * 8 + i % 2)) bits &= ~(1u << i);
    }
    keep.word[0] |= bits << 4 * piece;
  }
  keep.drop_from(limit - first);
  return keep.word[0];
}

// Write this block of threads' share of the keep words of a round.
__device__ void write_words(const Tile &tile, const Shared &shared, int list, int last) {
  const attention_block_lists &lists = tile.p.variant.lists;
  const int of_block = tile.p.parts * VARIANT_WORDS_OF_PART(tile.p.key_rows);
  for (int i = tile.writer; i < shared.written; i += 1 << tile.p.writer_bits) {
    const int at = shared.to_write[i];
    unsigned *const words = lists.words + ((int64_t)list * lists.written + shared.first_written + i) * of_block;
    for (int index = threadIdx.x; index < of_block; index += LIST_THREADS)
      words[index] = keep_word(tile, shared, last - at, at, index);
  }
}

// The entries of a list, as one warp finds them.
struct Entries {
  int *const out;
  const int most_written;
  int count = 0, written = 0; // entries so far, and those of them that have keep words

  // The entries of a round of blocks.
  __device__ void add(const Tile &tile, Shared &shared, int last, int round) {
    const int lane = threadIdx.x % kLanesPerWarp, before = written;
    for (int first = 0; first < round; first += kLanesPerWarp) {
      int entry = tile.entry(last - first - lane, shared.findings[first + lane]);
      const int parts = tile.partial_parts(entry);
      const uint32_t below = (1u << lane) - 1, partial = __ballot_sync(0xffffffffu, parts != 0);
      const int slot = written + __popc(partial & below);
      if (parts != 0 && slot < most_written) {
        entry += (VARIANT_WRITTEN - VARIANT_PARTIAL) * parts;
        shared.to_write[slot - before] = first + lane;
      }
      const uint32_t found = __ballot_sync(0xffffffffu, entry >= 0);
      if (entry >= 0 && tile.writer == 0) out[count + __popc(found & below)] = entry;
      count += __popc(found);
      written = variant::smaller(written + __popc(partial), most_written);
    }
    if (lane != 0) return;
    shared.first_written = before;
    shared.written = written - before;
  }
};

} // namespace

extern "C" __global__
__launch_bounds__(LIST_THREADS, 2) void attention_block_list(const __grid_constant__ attention_block_list_params p) {
  extern __shared__ __align__(16) unsigned char memory[];
  Shared &shared = *(Shared *)memory;
  const attention_block_lists &lists = p.variant.lists;
  const Tile tile(p);
  const int list = tile.batch * lists.batch_stride + tile.list_head * lists.head_stride + tile.tile;
  Entries entries{lists.entries + (int64_t)list * lists.capacity, lists.written};
  griddepcontrol_launch_dependents(); // the attention kernel begins meanwhile, and waits before it reads the lists
  if constexpr (variant::kMapped) griddepcontrol_wait(); // what attention_block_map writes is read from here on
  for (int last = ceil_div(p.variant.arguments.seq_kv, p.key_rows) - 1; last >= 0; last -= kRound) {
    const int round = variant::smaller(last + 1, kRound);
    for (int i = threadIdx.x; i < round; i += LIST_THREADS)
      shared.findings[i] = tile.first_finding(last - i);
    __syncthreads(); // what is known is there
    if constexpr (variant::kMasked) {
      for (int head = 0; head < tile.heads(); head++)
        ask(tile, shared, tile.first_head() + head, last, round);
    }
    if (threadIdx.x < kLanesPerWarp) entries.add(tile, shared, last, round);
    __syncthreads(); // the findings have been read, and what is to be written is known
    if (lists.written == 0) continue;
    write_words(tile, shared, list, last);
    __syncthreads(); // what is known of the round has been read
  }
  if (threadIdx.x != 0 || tile.writer != 0) return;
  if (entries.count == 0) entries.out[0] = 0; // block 0, partial: no row sees a key of it, and the tile writes zeros
  lists.counts[list] = entries.count == 0 ? 1 : entries.count;
}
