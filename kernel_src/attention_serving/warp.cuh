// The products and the softmax of one warp: 16 packed rows, and some keys of each block.
//
// Whoever includes this has included a config.cuh that defines the constants of namespace cfg, and Products: how the
// two products of a warp read their operands, and where in a tile its accumulators stand (products.cuh,
// products_e4m3.cuh).
#pragma once
#include <kjit/ptx/math.cuh>
#include <kjit/ptx/mma.cuh>
#include <kjit/types.cuh>

#include "attention_serving/descale.cuh"
#include "attention_serving/lengths.cuh"
#include "attention_serving/params.h"
#include "attention_serving/rows.cuh"
#include "softmax/online_softmax.cuh"

struct Warp {
  using Softmax = OnlineSoftmax<1, cfg::kKeyTiles * 2, cfg::kOutputTiles8, true, 8, true>;

  const attention_serving_params &p;
  const int lane, key_offset; // the warp's first key in each block
  Products products;
  Seen seen[2]; // by the thread's two rows
  float o[1][cfg::kOutputTiles8][4];
  Softmax softmax;

  // `keys`, `values`: the first tiles of K and V in shared memory.
  KJIT_DEVICE Warp(const attention_serving_params &params, uint32_t keys, uint32_t values, int warp, int lane)
      : p(params), lane(lane), key_offset(warp / cfg::kRowWarps * cfg::kWarpKeys), products(keys, values, warp, lane) {}

  KJIT_DEVICE void start(const PackedRows &rows, int sequence, int key_head, int row_warp) {
    Seen of_rows[2];
#pragma unroll
    for (int r = 0; r < 2; r++)
      of_rows[r] = seen_by(p, rows.s, rows.query(row_warp * 16 + r * 8 + lane / 4));
    start(descales_of(p, sequence, key_head), of_rows);
  }

  // The same with the keys that the thread's two rows see.
  KJIT_DEVICE void start(Descales of_head, const Seen (&of_rows)[2]) {
    if constexpr (cfg::kNarrow) descales = of_head;
#pragma unroll
    for (int r = 0; r < 2; r++)
      seen[r] = of_rows[r];
#pragma unroll
    for (int n = 0; n < cfg::kOutputTiles8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        o[0][n][i] = 0.0f;
    softmax.start();
  }

  // One block of keys, whose first key is `key`, in tiles of K and V that are `keys` and `values` behind the first.
  // masked: some row may not see all of them. between(): what is to be done when K has been read and V is needed: what
  // it does may not come before that, because softmax.find_maximum() branches by all scores. @return what
  // Products::multiply_values() does.
  template <typename Between>
  KJIT_DEVICE auto step(uint32_t keys, uint32_t values, int key, bool masked, Between between) {
    Scores s = {};
    products.multiply_keys(s, keys);
    if constexpr (cfg::kSoftcap) cap(s);
    if (masked) mask(s, key + key_offset);
    typename Softmax::Rows now, factors;
    if (softmax.template find_maximum<false>(s, now, p.scale, scale_log2())) {
      softmax.template set_max<false>(now, factors, scale_log2());
      softmax.rescale(o, factors);
    }
    softmax.template exponentiate<false>(s, scale_log2());
    between();
    return products.multiply_values(o, s, values);
  }

  // Of what the softmax sees.
  KJIT_DEVICE float scale_log2() const {
    return cfg::kSoftcap ? kLog2E : key_scale_log2();
  }

  // After the last block, before the accumulators are looked at.
  KJIT_DEVICE void end() {
    if constexpr (cfg::kNarrow) {
#pragma unroll
      for (int n = 0; n < cfg::kOutputTiles8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
          o[0][n][i] *= descales.v;
    }
  }

private:
  Descales descales; // with K and V of 8 bits

  KJIT_DEVICE float key_scale_log2() const {
    return cfg::kNarrow ? p.scale_log2 * descales.k : p.scale_log2;
  }

  // s = cap * tanh(scale * s / cap), by tanh x = 1 - 2 / (exp(2 x) + 1), which is exact enough at both ends.
  KJIT_DEVICE void cap(Scores &s) const {
    const float inner = 2.0f * key_scale_log2() / p.softcap;
#pragma unroll
    for (int n = 0; n < cfg::kKeyTiles * 2; n++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        s[0][n][i] = p.softcap * (1.0f - 2.0f * rcp_approx(ex2_approx(s[0][n][i] * inner) + 1.0f));
  }

  // Scores of keys that a row does not see become -inf. `key` is the warp's first.
  KJIT_DEVICE void mask(Scores &s, int key) const {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const unsigned count = (unsigned)at_least_0(seen[r].high - seen[r].low);
      const int first = key + Products::key_of(0, 0, lane) - seen[r].low;
#pragma unroll
      for (int n = 0; n < cfg::kKeyTiles * 2; n++)
#pragma unroll
        for (int i = 0; i < 2; i++)
          if ((unsigned)(first + Products::key_of(n, i, 0)) >= count) s[0][n][2 * r + i] = masked_score();
    }
  }
};
