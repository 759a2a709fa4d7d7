// Online softmax over accumulator tiles (Milakov and Gimelshein 2018; FlashAttention-2, Dao 2023, algorithm 1).
//
// A thread holds two rows of each 16-row tile (lane / 4 and + 8) and every fourth column pair of them. The row maximum
// is the quad's; the row sum stays the thread's own until the end, when it is reduced once.
#pragma once
#include "core/types.cuh"
#include "ptx/math.cuh"

// A key that does not exist. Every step has at least one that does, so a running maximum is never this after a step.
KJIT_DEVICE float masked_score() { return __int_as_float(0xff800000); } // -inf

// kFused: the scale is folded into one FMA before exp2, the maximum stays unscaled.
// Otherwise: the scores are scaled first, then exp(x) = exp2(x * log2 e).
template <int kRowTiles, int kColumnTiles8, int kOutputTiles8, bool kFused> struct OnlineSoftmax {
  using Scores = float[kRowTiles][kColumnTiles8][4];
  using Output = float[kRowTiles][kOutputTiles8][4];

  float max[kRowTiles][2];
  float sum[kRowTiles][2];

  KJIT_DEVICE void start() {
#pragma unroll
    for (int m = 0; m < kRowTiles; m++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        max[m][r] = masked_score();
        sum[m][r] = 0.0f;
      }
  }

  // Scores become probabilities relative to the running maximum; the output and the sum so far are rescaled to it.
  // kFirst: there is nothing so far, so nothing is rescaled.
  template <bool kFirst> KJIT_DEVICE void step(Scores &s, Output &o, float scale, float scale_log2) {
#pragma unroll
    for (int m = 0; m < kRowTiles; m++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        if constexpr (!kFused) scale_row(s, m, r, scale);
        const float before = max[m][r];
        const float now = quad_max(row_max(s, m, r, kFirst ? masked_score() : before));
        max[m][r] = now;
        if constexpr (!kFirst) {
          const float factor = kFused ? exp2_approx((before - now) * scale_log2) : exp2_approx((before - now) * kLog2E);
          sum[m][r] *= factor;
#pragma unroll
          for (int n = 0; n < kOutputTiles8; n++) {
            o[m][n][2 * r] *= factor;
            o[m][n][2 * r + 1] *= factor;
          }
        }
        const float added = exponentiate_row(s, m, r, now, scale_log2);
        sum[m][r] = kFirst ? added : sum[m][r] + added;
      }
  }

  // Divide the output by the row sums; `log_sum_exp(m, r, value)` receives each row's.
  template <typename LogSumExp> KJIT_DEVICE void finish(Output &o, float scale, LogSumExp log_sum_exp) {
#pragma unroll
    for (int m = 0; m < kRowTiles; m++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const float total = quad_sum(sum[m][r]);
        const float inverse = 1.0f / total;
        log_sum_exp(m, r, (kFused ? max[m][r] * scale : max[m][r]) + log2_approx(total) * kLn2);
#pragma unroll
        for (int n = 0; n < kOutputTiles8; n++) {
          o[m][n][2 * r] *= inverse;
          o[m][n][2 * r + 1] *= inverse;
        }
      }
  }

private:
  static KJIT_DEVICE void scale_row(Scores &s, int m, int r, float scale) {
#pragma unroll
    for (int n = 0; n < kColumnTiles8; n++) {
      s[m][n][2 * r] *= scale;
      s[m][n][2 * r + 1] *= scale;
    }
  }

  static KJIT_DEVICE float row_max(const Scores &s, int m, int r, float so_far) {
#pragma unroll
    for (int n = 0; n < kColumnTiles8; n++)
      so_far = fmaxf(so_far, fmaxf(s[m][n][2 * r], s[m][n][2 * r + 1]));
    return so_far;
  }

  // Row m, r of s becomes exp(s - max); returns this thread's part of its sum.
  static KJIT_DEVICE float exponentiate_row(Scores &s, int m, int r, float now, float scale_log2) {
    const float offset = kFused ? now * scale_log2 : 0.0f;
    float total = 0.0f;
#pragma unroll
    for (int n = 0; n < kColumnTiles8; n++)
#pragma unroll
      for (int c = 2 * r; c < 2 * r + 2; c++) {
        s[m][n][c] = kFused ? exp2_approx(s[m][n][c] * scale_log2 - offset) : exp2_approx((s[m][n][c] - now) * kLog2E);
        total += s[m][n][c];
      }
    return total;
  }
};
