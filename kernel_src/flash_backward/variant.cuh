// The steps of flash_backward with an attention variant: which pairs of a query and a key count, what becomes of a
// score, and what dS is multiplied by. variant_hooks.cuh has the functions of one pair.
#pragma once
#include <kjit/ptx/math.cuh>
#include <kjit/types.cuh>

#include "flash_backward/config.cuh"
#include "flash_backward/products.cuh"
#include "flash_backward/row_delta.cuh"
#include "flash_backward/variant_hooks.cuh"
#include "flash_backward/variant_params.h"
#include "flash_backward/visible.cuh"

namespace variant {

// One bit for each of a thread's pairs of a step.
struct PairBits {
  static constexpr int kPairs = cfg::kRowTiles * cfg::kStepTiles * 8, kWords = (kPairs + 31) / 32;
  uint32_t word[kWords];

  // Written so that no word is chosen by a number that is known only when the kernel runs: words stay in registers.
  KJIT_DEVICE void set(int at, bool value) {
#pragma unroll
    for (int w = 0; w < kWords; w++)
      if (at / 32 == w) word[w] |= (uint32_t)value << at % 32;
  }
  KJIT_DEVICE bool holds(int at) const {
    return word[at / 32] >> at % 32 & 1;
  }
};

// ---- Steps ---- `Block` is that of flash_backward.cu.

// The query and the key of a pair in a row of the own tile and a row of the step's.
template <typename Block>
KJIT_DEVICE void pair_of(const Block &block, int m, int n, int i, int tile, int &query, int &key) {
  const int row = block.own_row(m, i / 2), column = tile * cfg::kStepRows + n * 8 + block.lane % 4 * 2 + i % 2;
  query = cfg::kOwnsKeys ? column : row;
  key = cfg::kOwnsKeys ? row : column;
}

// What a step's pairs are: VARIANT_EMPTY, VARIANT_PARTIAL or VARIANT_FULL. The same for all threads of the block.
template <typename Block> KJIT_DEVICE int state_of(const Block &block, int head, int tile) {
  const int own_first = block.own_tile * cfg::kOwnRows, step_first = tile * cfg::kStepRows;
  return cfg::kOwnsKeys ? block.hooks.state(head, step_first, cfg::kStepRows, own_first, cfg::kOwnRows)
                        : block.hooks.state(head, own_first, cfg::kOwnRows, step_first, cfg::kStepRows);
}

// Which of a thread's pairs count, a bit for each. A loop that is not unrolled, because the mask's code then stands in
// the kernel once, and before the products, because its values need the registers of the accumulators.
template <typename Block> KJIT_DEVICE void judge(const Block &block, PairBits &seen, int head, int tile) {
#pragma unroll
  for (int w = 0; w < PairBits::kWords; w++)
    seen.word[w] = 0;
#pragma unroll 1
  for (int at = 0; at < PairBits::kPairs; at++) {
    int query, key;
    pair_of(block, at / (cfg::kStepTiles * 8), at / 4 % (cfg::kStepTiles * 2), at % 4, tile, query, key);
    seen.set(at, key < keys_seen(block.p, query) && block.hooks.sees(head, query, key));
  }
}

// S becomes P of the changed scores, and `slopes` their derivatives.
template <bool kPartial, typename Block>
KJIT_DEVICE void transform(const Block &block, products::Scores &s, products::Scores &slopes, const PairBits &seen,
                           int head, int tile, int stage) {
#pragma unroll
  for (int n = 0; n < cfg::kStepTiles * 2; n++) {
    Chunk pair = {};
    if constexpr (cfg::kOwnsKeys) pair = ld_shared_16(block.statistics_address(stage) + (n * 4 + block.lane % 4) * 16);
#pragma unroll
    for (int m = 0; m < cfg::kRowTiles; m++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const float lse = cfg::kOwnsKeys ? __uint_as_float(pair.word[i % 2]) : block.own_statistics[m].lse[i / 2];
        int query, key;
        pair_of(block, m, n, i, tile, query, key);
        const float score = s[m][n][i];
        if constexpr (cfg::kNeedsDs) slopes[m][n][i] = block.hooks.slope(score, head, query, key);
        const float power = ex2_approx(block.hooks.score_log2(score, block.p.scale_log2, head, query, key) - lse);
        // A row behind the last has an LSE of +inf, and the score of a row of zeros may be +inf too.
        const bool counts = lse < infinity() && (!kPartial || seen.holds((m * cfg::kStepTiles * 2 + n) * 4 + i));
        s[m][n][i] = counts ? power : 0.0f;
      }
  }
}

// P becomes P times the derivative; 0 where P is 0, because the derivative may be infinite there.
KJIT_DEVICE void apply_slopes(products::Scores &probabilities, const products::Scores &slopes) {
#pragma unroll
  for (int m = 0; m < cfg::kRowTiles; m++)
#pragma unroll
    for (int n = 0; n < cfg::kStepTiles * 2; n++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        if (probabilities[m][n][i] != 0.0f) probabilities[m][n][i] *= slopes[m][n][i];
}

} // namespace variant
