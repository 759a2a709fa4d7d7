// attention_sm90's consumer where each tile has a scale of its own: with K of 8 bits a score counts as what the product
// gives times the number of the tile's sequence and key head (attention_serving/descale.cuh).
#pragma once
#include "attention_prefill_sm90/tile.cuh"
#include "attention_sm90/consumer.cuh"

struct ScaledConsumer : Consumer {
  using Consumer::Consumer;

protected:
  // Of what the softmax sees, times log2(e). Scores that were capped have been multiplied by the tile's number.
  KJIT_DEVICE float scale_log2(const RaggedTile &tile) const {
    return cfg::kNarrow && !cfg::kSoftcap ? p.scale_log2 * tile.descales.k : p.scale_log2;
  }

  template <bool kMasked> KJIT_DEVICE void next_softmax(float scale_log2) {
    if constexpr (cfg::kNarrow)
      next_softmax_scaled<kMasked>(scale_log2);
    else
      Consumer::next_softmax<kMasked>();
  }

  KJIT_DEVICE void round_scores() {
    if constexpr (cfg::kConverts) {
#pragma unroll
      for (int k = 0; k < kKeyTiles; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const float(&pair)[4] = s[0][2 * k + i / 2];
          probabilities[k][i] = cvt_rn_x2(cfg::Product{}, pair[i % 2 * 2], pair[i % 2 * 2 + 1]);
        }
    } else {
      Consumer::round_scores();
    }
  }

private:
  // Consumer's, with a scale that lies in a register.
  template <bool kMasked> KJIT_DEVICE void next_softmax_scaled(float scale_log2) {
    typename Softmax::Rows added;
#pragma unroll kMasked ? 1 : 2
    for (int tries = 0; tries < 2; tries++) {
      // Without this the products of scores and scale would be kept in registers from one try to the next, and spilled.
      asm volatile("" : "+f"(scale_log2));
      if (tries > 0 || cfg::kRescaleThreshold == 0) softmax.raise_max(s, o, scale_log2);
      softmax.exponentiate_scores(s, added, scale_log2, [&](int, int n, int r, float p0, float p1) {
        probabilities[n / 2][n % 2 * 2 + r] = cvt_rn_x2(cfg::Product{}, p0, p1);
      });
      if (cfg::kRescaleThreshold == 0 || !Softmax::exceeds_threshold(added)) break;
    }
    softmax.add(added);
  }
};
