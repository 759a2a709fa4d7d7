// A tile whose key blocks attention_block_list finds, what is known of a block, and what its threads share.
#pragma once
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
  kMostParts = 3,      // of a tile's queries
  kWordedRows = kMostParts * kPieceQueries
};

// What was found of a block: some pair is seen, some is not, by two bits for each part of the tile's queries, of which
// there are at most three; the mask has to be asked.
enum { kSeen = 1, kUnseen = 2, kEveryPart = 1 + 4 + 16, kUnknown = 64 };

// Sides that are larger than this are computed again for each piece, as is what the map cuts into other pieces.
constexpr bool kKept = !variant::kMapped && sizeof(kjit_variant_keys) <= 32 && sizeof(kjit_variant_queries) <= 256;

// What is known of blocks without the mask is found before it is asked where a map says that; else it is a comparison.
constexpr bool kFindsFirst = variant::kMapped || !variant::kMasked;

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
  const int q0, q1;            // its queries
  const int query_pieces;      // along them
  const int first_head, heads; // the query heads of its rows: tiles count packs, or query heads

  __device__ Tile(const attention_block_list_params &p)
      : p(p), batch(blockIdx.z), list_head(blockIdx.y), tile(blockIdx.x >> p.writer_bits),
        writer(blockIdx.x & ((1 << p.writer_bits) - 1)), q0(tile * p.tile_queries),
        q1(variant::smaller(q0 + p.tile_queries, p.variant.arguments.seq_q)),
        query_pieces(ceil_div(q1, kPieceQueries) - q0 / kPieceQueries),
        first_head(p.packs == 1 ? list_head * p.group : list_head / p.packs * p.group + list_head % p.packs * p.packed),
        heads(p.packed == 1 ? 1 : variant::smaller(p.packed, p.group - list_head % p.packs * p.packed)) {}

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
    for (int i = 0; i < heads; i++)
      sum |= mapped_finding(p.variant, batch, first_head + i, area, false);
    return sum & kUnknown ? (int)kUnknown : sum * kEveryPart;
  }

  // A row, where tiles have parts.
  __device__ variant::Row row(int query) const {
    const int seq_kv = p.variant.arguments.seq_kv;
    return variant::Row(p.variant, batch, first_head, query,
                        p.causal ? variant::smaller(query + shift(), seq_kv) : seq_kv);
  }

  // A piece's state.
  __device__ int piece_state(int head, const Area &piece, const kjit_variant_queries &queries,
                             const kjit_variant_keys &keys) const {
    if constexpr (variant::kMapped) return state_of(mapped_finding(p.variant, batch, head, piece, true));
    if constexpr (!kKept) return masked_state(p.variant, batch, head, piece);
    return kjit_variant_block_meeting(p.variant.arguments, queries, keys, batch, head, piece.q0, piece.q1, piece.k0,
                                      piece.k1);
  }

  // A block's entry; -1: no row sees a key of it. What was found has a state for each part of the tile's queries, or
  // one for all of them. Keys beyond the last one, and those beyond the diagonal, are cut off in partial blocks alone.
  __device__ int entry(int block, int finding) const {
    if (block < 0) return -1;
    const Area area = area_of(block);
    const int states = p.parts > 0 ? ceil_div(variant::smaller(q1 - q0, p.parts * kPieceQueries), kPieceQueries) : 1;
    const int seen = finding & kSeen * kEveryPart & ((1 << 2 * states) - 1);
    int partial = finding >> 1 & kSeen * kEveryPart;
    if (area.k1 - area.k0 < p.key_rows) partial = kSeen * kEveryPart;
    if (p.causal) partial |= cut_by_diagonal(area);
    const int found = (seen & partial) * VARIANT_PARTIAL + (seen & ~partial) * VARIANT_FULL;
    if (seen == 0) return -1;
    return p.parts > 0 ? (block << 2 * p.parts) + found : 2 * block + (found == VARIANT_FULL);
  }

  // The parts whose first query does not see all keys of an area, by the lower bits of their states.
  __device__ int cut_by_diagonal(const Area &area) const {
    int parts = 0;
#pragma unroll
    for (int part = 0; part < kMostParts; part++)
      if (area.k1 > q0 + part * kPieceQueries + shift()) parts |= kSeen << 2 * part;
    return parts;
  }

  // Which parts of an entry are partial, by the lower bits of their states.
  __device__ int partial_parts(int entry) const {
    return entry < 0 || p.parts == 0 ? 0 : entry & ~(entry >> 1) & kEveryPart & ((1 << 2 * p.parts) - 1);
  }
};

// The mask's sides of single rows are kept where they are small.
constexpr bool kRowsKept = kKept && sizeof(kjit_variant_queries) <= 32;

struct Shared {
  int findings[kRound];                  // of the key blocks `last`, `last` - 1, ...
  uint64_t seen[kRound], unseen[kRound]; // what was found of their pieces, a bit each, where there are keep words and
                                         // the mask was asked
  int to_write[LIST_WRITTEN];            // which of these blocks, and parts of them, keep words are written for,
  int counts[kRound / kLanesPerWarp];    // of entries, and of blocks of which a part is partial, by warps
  kjit_variant_queries queries[kKept ? kQueryPieces : 1]; // sides of the tile's pieces or, with those of rows, of 32,
  kjit_variant_queries rows[kRowsKept ? kWordedRows : 1]; // and of its rows
  kjit_variant_keys keys[kRowsKept ? kRound : 1];         // sides of whole blocks, of those that are partial

  static __device__ int to_write_of(int at, int parts) { return parts << 16 | at; }
  static __device__ int at_of(int to_write) { return to_write & 0xffff; }
  static __device__ int parts_of(int to_write) { return to_write >> 16; } // by the lower bits of their states
};
static_assert(sizeof(Shared) <= LIST_SHARED, "LIST_SHARED: what the host asks for is enough");

// One side as another lane has it.
template <typename Side> __device__ Side side_of_lane(const Side &own, int lane) {
  union {
    Side side;
    uint32_t word[sizeof(Side) / sizeof(uint32_t)];
  } copy = {own};
#pragma unroll
  for (int i = 0; i < (int)(sizeof(Side) / sizeof(uint32_t)); i++)
    copy.word[i] = __shfl_sync(0xffffffffu, copy.word[i], lane);
  return copy.side;
}

} // namespace
