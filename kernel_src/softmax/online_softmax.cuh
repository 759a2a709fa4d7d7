// Online softmax over accumulator tiles (Milakov and Gimelshein 2018; FlashAttention-2, Dao 2023, algorithm 1).
//
// Accumulators of mma.m16n8 and of wgmma.m64 lie alike in a thread: of every 16-row tile two rows (lane / 4 and + 8),
// of every 8 columns two (2 * (lane % 4), + 1). The row maximum is the quad's; the row sum stays the thread's own until
// the end, when it is reduced once.
//
// Each thread keeps, for its rows, a running maximum and a running sum. A step over one block of keys is either
//   find_maximum(), set_max() and rescale() where needed, exponentiate(); or, after the first step,
//   exponentiate_scores(), which does not look for a maximum, and, where exceeds_threshold() says that the running
//   maximum was too low, raise_max() and exponentiate_scores() again.
// finish() divides by the sums. The caller orders these around its matrix products. All lanes of a warp call them
// together.
#pragma once
#include <kjit/ptx/math.cuh>
#include <kjit/types.cuh>
#include <kjit/warp.cuh>

using namespace kjit;

// The score of a key that a row does not see: its probability becomes 0.
KJIT_DEVICE float masked_score() {
  return __int_as_float(0xff800000); // -inf
}

// Set `score` to -inf unless column < valid. One asm statement, because otherwise ptxas computes the predicates of many
// scores first and keeps them in registers.
KJIT_DEVICE void mask_unless_less(float &score, int column, int valid) {
  asm volatile("{ .reg .pred outside; setp.ge.s32 outside, %1, %2; @outside mov.b32 %0, 0xff800000; }"
               : "+f"(score)
               : "r"(column), "r"(valid));
}

//   kFused          true: the scale is folded into one FMA before exp2, the maximum is that of unscaled scores, and the
//                   output is rescaled only when some row's maximum exceeds the running one by a factor of more than
//                   2^kThresholdLog2. Until then probabilities above 1 do no harm, because output and sum are relative
//                   to the same maximum (FlashAttention-4's conditional rescale). false: the scores are scaled first,
//                   then exp(x) = exp2(x * log2 e), and the output is rescaled in every step.
//   kThresholdLog2  log2 of the rescale threshold; 0 rescales whenever the maximum rises. A thread's sum of one step is
//                   compared with the threshold, so it is at most 15: fp16 can then hold each term of the sum.
//   kRowsMayBeEmpty true when a row may see no key, in a step or at all
template <int kRowTiles, int kColumnTiles8, int kOutputTiles8, bool kFused, int kThresholdLog2, bool kRowsMayBeEmpty>
struct OnlineSoftmax {
  using Scores = float[kRowTiles][kColumnTiles8][4];
  using Output = float[kRowTiles][kOutputTiles8][4];
  using Rows = float[kRowTiles][2];

  Rows max; // each row's running maximum, or a value below it by at most the rescale threshold
  Rows sum; // each row's sum of exp2(score - max) over this thread's columns

  // The state before the first step, for a caller that does not treat the first step as a case of its own.
  KJIT_DEVICE void start() {
    for_rows([&](int m, int r) {
      max[m][r] = masked_score();
      sum[m][r] = 0.0f;
    });
  }

  // Row maxima of the scores and, unless kFirst, of all before them.
  // @return whether the running maximum must rise for some row of this warp; the same for all its lanes.
  template <bool kFirst> KJIT_DEVICE bool find_maximum(Scores &s, Rows &now, float scale, float scale_log2) const {
    if constexpr (!kFused) scale_scores(s, scale);
    bool outgrown = false;
    for_rows([&](int m, int r) {
      now[m][r] = quad_max(row_max(s, m, r, kFirst ? masked_score() : max[m][r]));
      // An empty row's maximum is made finite, so that exp2 sees -inf and not the difference of two infinities.
      if constexpr (kRowsMayBeEmpty) now[m][r] = fmaxf(now[m][r], -1e30f);
      outgrown |= (now[m][r] - max[m][r]) * scale_log2 > kThresholdLog2;
    });
    return kFirst || !kFused || kThresholdLog2 == 0 || __any_sync(0xffffffffu, outgrown);
  }

  // Make `now` the running maximum. `factors` receives what the output must be multiplied by.
  template <bool kFirst> KJIT_DEVICE void set_max(const Rows &now, Rows &factors, float scale_log2) {
    for_rows([&](int m, int r) {
      if constexpr (!kFirst) {
        factors[m][r] = ex2_approx((max[m][r] - now[m][r]) * (kFused ? scale_log2 : kLog2E));
        sum[m][r] *= factors[m][r];
      }
      max[m][r] = now[m][r];
    });
  }

  // Probabilities of a step's scores relative to the running maximum, and each row's sum of them over this thread's
  // columns. The scores stay as they are, so that they can be exponentiated again. No maximum is looked for, because
  // the sums tell whether the running maximum was high enough.
  //   take(m, n, r, p0, p1)  receives the two probabilities of row r (0, 1) of row tile m, in column tile n
  // Even and odd columns are summed in two chains of additions, because one chain's latency would be waited for.
  template <typename Take>
  KJIT_DEVICE void exponentiate_scores(const Scores &s, Rows &added, float scale_log2, Take take) const {
    for_rows([&](int m, int r) {
      const float offset = max[m][r] * scale_log2;
      float even = 0.0f, odd = 0.0f;
#pragma unroll
      for (int n = 0; n < kColumnTiles8; n++) {
        const float p0 = ex2_approx(s[m][n][2 * r] * scale_log2 - offset);
        const float p1 = ex2_approx(s[m][n][2 * r + 1] * scale_log2 - offset);
        even += p0;
        odd += p1;
        take(m, n, r, p0, p1);
      }
      added[m][r] = even + odd;
    });
  }

  // Whether some row of the warp has a sum above 2^kThresholdLog2; the same for all its lanes.
  static KJIT_DEVICE bool exceeds_threshold(const Rows &added) {
    bool outgrown = false;
    for_rows([&](int m, int r) { outgrown |= added[m][r] > (float)(1 << kThresholdLog2); });
    return __any_sync(0xffffffffu, outgrown);
  }

  // Make the maximum of these scores and all before them the running maximum, and scale output and sums down to it.
  KJIT_DEVICE void raise_max(const Scores &s, Output &o, float scale_log2) {
    Rows now, factors;
    for_rows([&](int m, int r) { now[m][r] = quad_max(row_max(s, m, r, max[m][r])); });
    set_max<false>(now, factors, scale_log2);
    rescale(o, factors);
  }

  KJIT_DEVICE void add(const Rows &added) {
    for_rows([&](int m, int r) { sum[m][r] += added[m][r]; });
  }

  static KJIT_DEVICE void rescale(Output &o, const Rows &factors) {
    for_rows([&](int m, int r) {
#pragma unroll
      for (int n = 0; n < kOutputTiles8; n++) {
        o[m][n][2 * r] *= factors[m][r];
        o[m][n][2 * r + 1] *= factors[m][r];
      }
    });
  }

  // Replace the scores by their probabilities relative to the running maximum, and add these to the sums.
  template <bool kFirst> KJIT_DEVICE void exponentiate(Scores &s, float scale_log2) {
    for_rows([&](int m, int r) {
      const float now = max[m][r], offset = now * scale_log2;
      float added = 0.0f;
#pragma unroll
      for (int n = 0; n < kColumnTiles8; n++)
#pragma unroll
        for (int c = 2 * r; c < 2 * r + 2; c++) {
          s[m][n][c] = kFused ? ex2_approx(s[m][n][c] * scale_log2 - offset) : ex2_approx((s[m][n][c] - now) * kLog2E);
          added += s[m][n][c];
        }
      sum[m][r] = kFirst ? added : sum[m][r] + added;
    });
  }

  // Divide the output by the row sums. `log_sum_exp(m, r, value)` receives each row's log-sum-exp. A row that sees no
  // key gets an output of 0 and a log-sum-exp of -inf.
  template <typename LogSumExp> KJIT_DEVICE void finish(Output &o, float scale, LogSumExp log_sum_exp) {
    Rows inverse;
    for_rows([&](int m, int r) {
      const float total = quad_sum(sum[m][r]);
      const bool empty = kRowsMayBeEmpty && total == 0.0f;
      inverse[m][r] = empty ? 0.0f : 1.0f / total;
      log_sum_exp(m, r, empty ? masked_score() : max[m][r] * (kFused ? scale : 1.0f) + lg2_approx(total) * kLn2);
    });
    rescale(o, inverse);
  }

private:
  template <typename Visit> static KJIT_DEVICE void for_rows(Visit visit) {
#pragma unroll
    for (int m = 0; m < kRowTiles; m++)
#pragma unroll
      for (int r = 0; r < 2; r++)
        visit(m, r);
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
};
