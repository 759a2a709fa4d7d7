// The order in which a tile's key blocks are visited: outwards from the block where the score function's term is
// largest, both ways in turns, because a softmax has to be scaled down at each block whose scores exceed those before
// it by much. Scores of ALiBi that sees both ways climb towards the diagonal, by 92 powers of two a block of 128 keys
// where the slope is 0.5: visited from one end, half of all blocks would have their exponentials computed twice.
//
// The term is evaluated at some blocks for one row of the tile. Only the order depends on what is found, so that a term
// with several peaks costs time alone. Used for terms that read no element of a tensor for each key, and are not linear
// along a row: KJIT_VARIANT_PEAK.
#pragma once
#include "attention_variant/block_walk.cuh"

namespace variant {

// The position that comes in turn `turn` of a walk over `count` of them that begins at `start`.
KJIT_DEVICE int outwards(int turn, int start, int count) {
  const int alternating = 2 * smaller(start, count - 1 - start);
  if (turn <= alternating) return turn % 2 ? start - (turn + 1) / 2 : start + turn / 2;
  return 2 * start > count - 1 ? count - 1 - turn : turn;
}

// The position in a walk over ranges of the block of `key_rows` keys at which the term is largest for a row, of several
// the first. All lanes of a warp: they look at positions that are evenly spaced, and then closer around the best.
template <int key_rows>
KJIT_DEVICE int find_peak(const BlockWalk &walk, const attention_variant_params &v, const Row &row, int lane) {
  int best = 0;
#if KJIT_VARIANT_PEAK
  int first = 0;
#pragma unroll 1
  for (int spacing = (walk.count + kLanesPerWarp - 1) / kLanesPerWarp;; first = best - kLanesPerWarp / 2 * spacing) {
    int position = larger(smaller(first + lane * spacing, walk.count - 1), 0);
    const int key = walk.entry(position) / 2 * key_rows + key_rows / 2;
    float term = kjit_variant_term(v.arguments, row.batch, row.head, row.query, key);
#pragma unroll
    for (int lanes = kLanesPerWarp / 2; lanes > 0; lanes /= 2) {
      const float other_term = __shfl_xor_sync(0xffffffffu, term, lanes);
      const int other = __shfl_xor_sync(0xffffffffu, position, lanes);
      if (other_term > term || (other_term == term && other < position)) {
        term = other_term;
        position = other;
      }
    }
    best = broadcast_from_lane_0(position);
    if (spacing == 1) break;
    spacing = (2 * spacing + kLanesPerWarp - 1) / kLanesPerWarp;
  }
#endif
  return best;
}

} // namespace variant
