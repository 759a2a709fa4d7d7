// Online softmax over accumulator tiles (Milakov and Gimelshein 2018; FlashAttention-2, Dao 2023, algorithm 1).
//
// A thread holds two rows of each 16-row tile (lane / 4 and + 8) and every fourth column pair of them. The row maximum
// is the quad's; the row sum stays the thread's own until the end, when it is reduced once.
#pragma once
#include "core/types.cuh"
#include "ptx/math.cuh"

// A key that does not exist. Every step has at least one that does, so a running maximum is never this after a step.
KJIT_DEVICE float masked_score() {
  return __int_as_float(0xff800000);
} // -inf

// -inf unless column < valid. In one piece, so that predicates are not gathered and kept.
KJIT_DEVICE void mask_unless_less(float &score, int column, int valid) {
  asm volatile("{ .reg .pred outside; setp.ge.s32 outside, %1, %2; @outside mov.b32 %0, 0xff800000; }"
               : "+f"(score)
               : "r"(column), "r"(valid));
}

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

  // Scores become probabilities relative to a reference maximum; the output and the sum so far are brought to the same.
  // kFirst: there is nothing so far, so nothing is rescaled.
  //
  // Fused, the reference is moved only when some row of the warp has outgrown it by more than 2^kSlack: until then
  // probabilities above 1 do no harm (FlashAttention-4's conditional rescale; exact, as both O and the sum use the
  // same).
  template <bool kFirst> KJIT_DEVICE void step(Scores &s, Output &o, float scale, float scale_log2) {
    if constexpr (!kFused) scale_scores(s, scale);
    float now[kRowTiles][2];
    bool outgrown = false;
#pragma unroll
    for (int m = 0; m < kRowTiles; m++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        now[m][r] = quad_max(row_max(s, m, r, kFirst ? masked_score() : max[m][r]));
        outgrown |= (now[m][r] - max[m][r]) * scale_log2 > kSlack;
      }
    if (kFirst || !kFused || __any_sync(0xffffffffu, outgrown)) move_reference<kFirst>(now, o, scale_log2);
#pragma unroll
    for (int m = 0; m < kRowTiles; m++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const float added = exponentiate_row(s, m, r, scale_log2);
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
  static constexpr float kSlack = 8.0f;

  template <bool kFirst>
  KJIT_DEVICE void move_reference(const float (&now)[kRowTiles][2], Output &o, float scale_log2) {
#pragma unroll
    for (int m = 0; m < kRowTiles; m++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const float factor = exp2_approx((max[m][r] - now[m][r]) * (kFused ? scale_log2 : kLog2E));
        max[m][r] = now[m][r];
        if constexpr (!kFirst) {
          sum[m][r] *= factor;
#pragma unroll
          for (int n = 0; n < kOutputTiles8; n++) {
            o[m][n][2 * r] *= factor;
            o[m][n][2 * r + 1] *= factor;
          }
        }
      }
  }

  static KJIT_DEVICE void scale_scores(Scores &s, float scale) {
#pragma unroll
    for (int m = 0; m < kRowTiles; m++)
#pragma unroll
      for (int n = 0; n < kColumnTiles8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
          s[m][n][i] *= scale;
  }

  static KJIT_DEVICE float row_max(const Scores &s, int m, int r, float so_far) {
#pragma unroll
    for (int n = 0; n < kColumnTiles8; n++)
      so_far = fmaxf(so_far, fmaxf(s[m][n][2 * r], s[m][n][2 * r + 1]));
    return so_far;
  }

  // Row m, r of s becomes exp(s - reference); returns this thread's part of its sum.
  KJIT_DEVICE float exponentiate_row(Scores &s, int m, int r, float scale_log2) const {
    const float now = max[m][r], offset = now * scale_log2;
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
