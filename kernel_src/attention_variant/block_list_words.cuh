// The keep words of a tile's partial blocks: for each 64 queries of which a block is partial, the words that the
// consumers' threads would find by judging their scores.
//
//   row          first the mask is evaluated for one row and all keys of the block, on ranges: where rows of a tile
//                differ, as those of two documents do, most see all of a block's keys or none
//   keys of 64   then, where some row of a warp is left, its scores are judged key by key, but for those keys of which
//                the pieces say that all of the 64 queries see them, or none
//
// The blocks of threads of a tile take its blocks in turns; in each, four warps have 64 queries of a block.
#pragma once
#include "attention_variant/block_list_tile.cuh"

namespace {

enum {
  kPartWarps = 4,                                     // of a warpgroup, which computes a part's scores
  kTurns = LIST_THREADS / kLanesPerWarp / kPartWarps, // parts that are written at a time
  kWordKeys = 128,                                    // keys of which a thread has a word of scores for a row
  kJudgedKeys = 64,                                   // of them, those that are judged together
  kJudgedPieces = kJudgedKeys / kPieceKeys,
  kJudgedBits = kJudgedKeys / 4, // bits of them, since four lanes share a row
  kWordSteps = kWordKeys / kJudgedKeys
};

// The state of all keys of a block for one row.
__device__ int row_state(const Tile &tile, const Shared &shared, const Area &area, int at, int query) {
  if constexpr (!kRowsKept) return VARIANT_PARTIAL;
  const int own = variant::smaller(query, tile.q1 - 1);
  return kjit_variant_block_meeting(tile.p.variant.arguments, shared.rows[own - tile.q0], shared.keys[at], tile.batch,
                                    tile.first_head, own, own + 1, area.k0, area.k1);
}

// The words of two rows for 128 keys from `first` on, by judging. `seen` and `unseen` say what 64 queries see of their
// pieces.
__device__ void judge_word(uint32_t (&words)[2], const attention_variant_params &v, const variant::Row (&rows)[2],
                           int first, uint32_t seen, uint32_t unseen) {
  constexpr uint32_t kPieces = (1 << kJudgedPieces) - 1;
  words[0] = words[1] = 0;
#pragma unroll 1
  for (int step = 0; step < kWordSteps; step++) {
    const uint32_t step_seen = seen >> step * kJudgedPieces & kPieces;
    const uint32_t step_unseen = unseen >> step * kJudgedPieces & kPieces;
    variant::KeepWords<kJudgedKeys / 8> keep[2];
    keep[0].word[0] = keep[1].word[0] = step_unseen == 0 ? 0xffff : 0;
    if (step_seen != 0 && step_unseen != 0)
      variant::judge_rows(keep, v, rows, first + step * kJudgedKeys, threadIdx.x % kLanesPerWarp);
#pragma unroll
    for (int r = 0; r < 2; r++)
      words[r] |= keep[r].word[0] << kJudgedBits * step;
  }
}

// Write the words of one part of the written-th block of a round, a warp for 16 rows.
__device__ void write_part(const Tile &tile, const Shared &shared, int written, int part, int last, unsigned *words) {
  const attention_variant_params &v = tile.p.variant;
  const int lane = threadIdx.x % kLanesPerWarp, warp = threadIdx.x / kLanesPerWarp % kPartWarps;
  const int at = Shared::at_of(shared.to_write[written]), query = tile.q0 + part * kPieceQueries + warp * 16 + lane / 4;
  const Area area = tile.area_of(last - at);
  const variant::Row rows[2] = {tile.row(query), tile.row(query + 8)};
  const int states[2] = {row_state(tile, shared, area, at, query), row_state(tile, shared, area, at, query + 8)};
  const bool is_left = __any_sync(0xffffffffu, states[0] == VARIANT_PARTIAL || states[1] == VARIANT_PARTIAL);
  const bool is_asked = shared.findings[at] & kUnknown;
  const int row_words = VARIANT_WORDS_OF_ROW(tile.p.key_rows), pieces = tile.p.key_rows / kPieceKeys;
  for (int word = 0; word < row_words; word++) {
    const int first_key = area.k0 + word * kWordKeys, piece = part * pieces + word * (kWordKeys / kPieceKeys);
    uint32_t found[2] = {states[0] == VARIANT_FULL ? ~0u : 0, states[1] == VARIANT_FULL ? ~0u : 0};
    if (is_left)
      judge_word(found, v, rows, first_key, is_asked ? (uint32_t)(shared.seen[at] >> piece) : ~0u,
                 is_asked ? (uint32_t)(shared.unseen[at] >> piece) : ~0u);
#pragma unroll
    for (int r = 0; r < 2; r++) {
      variant::KeepWords<kWordKeys / 8> keep = {{found[r]}};
      if (rows[r].limit < first_key + kWordKeys) keep.drop_from(rows[r].limit - first_key - lane % 4 * 2);
      words[((warp * kLanesPerWarp + lane) * 2 + r) * row_words + word] = keep.word[0];
    }
  }
}

// Write this block of threads' share of the keep words of a round: of `writing` blocks, as the list's first_written-th
// and those that follow.
__device__ void write_words(const Tile &tile, Shared &shared, int list, int last, int first_written, int writing) {
  const attention_block_lists &lists = tile.p.variant.lists;
  const int of_part = VARIANT_WORDS_OF_PART(tile.p.key_rows), turn = threadIdx.x / kLanesPerWarp / kPartWarps;
  int count = 0;
  for (int i = tile.writer; i < writing; i += 1 << tile.p.writer_bits) {
    const int64_t block = (int64_t)list * lists.written + first_written + i;
    for (int part = 0; part < tile.p.parts; part++)
      if (Shared::parts_of(shared.to_write[i]) >> 2 * part & 1 && count++ % kTurns == turn)
        write_part(tile, shared, i, part, last, lists.words + (block * tile.p.parts + part) * of_part);
  }
}

} // namespace
