// What the kernels of an attention variant call: which keys a row sees and what becomes of a score. The variant's own
// functions come from the generated header attention_variant.cuh.
//
// Masks are judged into keep words, one bit for each score of a thread, before the scores are computed: a mask that
// stood in the loop over the scores would cost hundreds of spilled bytes (docs/variants.md). Accumulators of mma.m16n8
// and of wgmma.m64 lie alike in a thread, so the words serve both families: bit 2n + i of a row is the score in columns
// 8n + 2 (lane % 4) + i.
//
// row_score.cuh has what a score function that folds into the exponent costs less by, block_walk.cuh the key blocks.
#pragma once
#include <kjit/attention/variant_real_ranges.h>
#include <kjit/ptx/math.cuh>
#include <kjit/types.cuh>
#include <kjit/warp.cuh>

#include "attention_variant/params.h"
#include "softmax/online_softmax.cuh"

#include "attention_variant.cuh"

#if !defined(KJIT_variant_lists) || !defined(KJIT_variant_map) || !defined(KJIT_variant_sinks)
#error "KJIT_variant_lists, KJIT_variant_map or KJIT_variant_sinks is not defined: 0 or 1"
#elif !defined(KJIT_variant_pairs)
#error "KJIT_variant_pairs is not defined: 0 to 3"
#endif

namespace variant {

constexpr bool kScored = KJIT_VARIANT_SCORE;
constexpr bool kMasked = KJIT_VARIANT_MASK;
// score = slope * core(inner * s) + term, so that slope and term fold into the exponent (RowScore)
constexpr bool kFolded = kScored && (KJIT_VARIANT_AFFINE || KJIT_VARIANT_CORE);
// The core is tanh, which a polynomial computes where its argument is small (RowScore).
constexpr bool kNear = kFolded && KJIT_VARIANT_TANH;
// The term may be largest at any key of a row, and reads nothing for each key (walk_order.cuh).
constexpr bool kHasPeak = kFolded && KJIT_VARIANT_PEAK;
constexpr bool kListed = KJIT_variant_lists; // blocks come from lists, where the launch has memory for them
constexpr bool kMapped = KJIT_variant_map;   // the caller gave states of blocks
constexpr bool kSinks = KJIT_variant_sinks;
// The term is a tensor's element of 16 bits for each key, two of which lie in a word; with 2 for KJIT_variant_pairs
// eight of them can be copied at once, with 3 boxes of them by a tensor map.
constexpr bool kTiled = kFolded && KJIT_VARIANT_TILE && KJIT_variant_pairs;
// Every score of a partial block is judged by itself.
constexpr bool kJudged = kMapped || (kMasked && KJIT_VARIANT_INTERVALS == 0);
// Row intervals: those of the mask, or the one that ends where the row's keys end.
constexpr int kIntervals = kMasked && !kJudged ? KJIT_VARIANT_INTERVALS : 1;

constexpr int kManyKeys = 0x7fffffff;

static_assert(KJIT_VARIANT_INTERVALS >= 0 && KJIT_VARIANT_INTERVALS <= 4, "KJIT_VARIANT_INTERVALS: 0 to 4");

KJIT_DEVICE int smaller(int a, int b) {
  return a < b ? a : b;
}
KJIT_DEVICE int larger(int a, int b) {
  return a > b ? a : b;
}

// One row of scores. A row that does not exist is evaluated as the last one that does.
struct Row {
  int batch, head, query;
  int limit; // keys that exist for it: the first ones

  KJIT_DEVICE Row(const attention_variant_params &v, int batch, int head, int query, int limit)
      : batch(batch), head(smaller(head, v.arguments.heads_q - 1)), query(smaller(query, v.arguments.seq_q - 1)),
        limit(limit) {}
};

// The which-th interval of a row, within the keys that exist for it; empty: low >= high.
KJIT_DEVICE void interval(const attention_variant_params &v, const Row &row, int which, int &low, int &high) {
  low = 0;
  high = row.limit;
#if KJIT_VARIANT_MASK && KJIT_VARIANT_INTERVALS > 0
  if constexpr (!kJudged) {
    kjit_variant_interval(v.arguments, which, row.batch, row.head, row.query, low, high);
    low = larger(low, 0);
    high = smaller(high, row.limit);
  }
#endif
}

// The caller's map of a head: the states of the blocks of one of its rows, and the state of one block.
KJIT_DEVICE const unsigned char *map_states(const attention_variant_params &v, int batch, int head, int map_row) {
  return &v.map.states[batch * v.map.batch_stride + head * v.map.head_stride + (int64_t)map_row * v.map.columns];
}
KJIT_DEVICE int map_state(const attention_variant_params &v, int batch, int head, int map_row, int map_column) {
  return map_states(v, batch, head, map_row)[map_column];
}

// The map's row that has a row of scores.
KJIT_DEVICE int map_row_of(const attention_variant_params &v, const Row &row) {
  return smaller(row.query / v.map.query_rows, v.map.rows - 1);
}

// Judge one key of a row.
KJIT_DEVICE bool sees(const attention_variant_params &v, const Row &row, int key) {
  if constexpr (kMapped) {
    const int column = key / v.map.key_rows;
    const int state = map_state(v, row.batch, row.head, map_row_of(v, row), smaller(column, v.map.columns - 1));
    if (state != VARIANT_PARTIAL || !kMasked) return state != VARIANT_EMPTY;
  }
  return kjit_variant_mask(v.arguments, row.batch, row.head, row.query, key);
}

// Which of a thread's scores of one row count.
template <int kColumns8> struct KeepWords {
  static constexpr int kBits = 2 * kColumns8, kWords = (kBits + 31) / 32;
  uint32_t word[kWords];

  KJIT_DEVICE bool keeps(int column8, int i) const {
    const int bit = 2 * column8 + i;
    return word[bit / 32] >> bit % 32 & 1;
  }

  KJIT_DEVICE void keep_all() {
#pragma unroll
    for (int w = 0; w < kWords; w++)
      word[w] = ~0u;
  }

  KJIT_DEVICE void keep_none() {
#pragma unroll
    for (int w = 0; w < kWords; w++)
      word[w] = 0;
  }

  KJIT_DEVICE bool any() const {
    uint32_t all = 0;
#pragma unroll
    for (int w = 0; w < kWords; w++)
      all |= word[w];
    return all != 0;
  }

  // Keep those of `others` that are among `of`, besides.
  KJIT_DEVICE void add(const KeepWords &others, const KeepWords &of) {
#pragma unroll
    for (int w = 0; w < kWords; w++)
      word[w] |= others.word[w] & of.word[w];
  }

  // Decide for the keys from `first_key` on, of which those from low to high - 1 count.
  KJIT_DEVICE void decide_between(int low, int high, int first_key, int lane) {
    const int first = first_key + lane % 4 * 2;
#pragma unroll
    for (int w = 0; w < kWords; w++)
      word[w] = 0;
    add_between(low - first, high - first);
  }

  // Decide for the keys from `first_key` on.
  KJIT_DEVICE void decide(const attention_variant_params &v, const Row &row, int first_key, int lane) {
    const int first = first_key + lane % 4 * 2;
    if constexpr (kJudged)
      judge(v, row, first);
    else
      compare(v, row, first);
  }

  // Add the scores of columns low to high - 1, which count from the thread's first one.
  KJIT_DEVICE void add_between(int low, int high) {
    const int from = bits_below(low), to = bits_below(high);
#pragma unroll
    for (int w = 0; w < kWords; w++)
      word[w] |= ones(to - 32 * w) & ~ones(from - 32 * w);
  }

  // Drop the scores of the columns from `column` on, which counts from the thread's first one.
  KJIT_DEVICE void drop_from(int column) {
    const int end = bits_below(column);
#pragma unroll
    for (int w = 0; w < kWords; w++)
      word[w] &= ones(end - 32 * w);
  }

private:
  // A loop that is not unrolled, because the mask's code then stands in the kernel once.
  KJIT_DEVICE void judge(const attention_variant_params &v, const Row &row, int first) {
#pragma unroll
    for (int w = 0; w < kWords; w++) {
      uint32_t bits = 0;
#pragma unroll 1
      for (int bit = 0; bit < (w + 1 < kWords ? 32 : kBits - 32 * w); bit++) {
        const int key = first + w * 128 + bit / 2 * 8 + bit % 2;
        if (key < row.limit && sees(v, row, key)) bits |= 1u << bit;
      }
      word[w] = bits;
    }
  }

  KJIT_DEVICE void compare(const attention_variant_params &v, const Row &row, int first) {
#pragma unroll
    for (int w = 0; w < kWords; w++)
      word[w] = 0;
#pragma unroll
    for (int which = 0; which < kIntervals; which++) {
      int low, high;
      interval(v, row, which, low, high);
      add_between(low - first, high - first);
    }
  }

  // How many of the thread's columns lie below `column`, which counts from the thread's first one.
  static KJIT_DEVICE int bits_below(int column) {
    return column <= 0 ? 0 : smaller(column / 8 * 2 + smaller(column % 8, 2), kBits);
  }
  // The `count` lowest bits.
  static KJIT_DEVICE uint32_t ones(int count) {
    return count <= 0 ? 0 : count >= 32 ? ~0u : (1u << count) - 1;
  }
};

// A score as the softmax takes it: the variant's function of the scaled score, times log2(e). Where the score function
// is the identity the scale stays in the exponent, as in dense attention.
template <bool kLog2>
KJIT_DEVICE float transformed(const attention_variant_params &v, float s, const Row &row, int key) {
  if constexpr (!kScored) return s;
  return kjit_variant_score(v.arguments, s * v.score_scale, row.batch, row.head, row.query, key) *
         (kLog2 ? kLog2E : 1.0f);
}

// Transform the scores of a thread's r-th row, and set those that do not count to -inf.
template <bool kPartial, bool kLog2, int kColumns8>
KJIT_DEVICE void apply(float (&s)[kColumns8][4], int r, const attention_variant_params &v, const Row &row,
                       const KeepWords<kColumns8> &keep, int first_key, int lane) {
#pragma unroll
  for (int n = 0; n < kColumns8; n++)
#pragma unroll
    for (int i = 0; i < 2; i++) {
      float &score = s[n][2 * r + i];
      score = transformed<kLog2>(v, score, row, first_key + lane % 4 * 2 + n * 8 + i);
      if (kPartial && !keep.keeps(n, i)) score = masked_score();
    }
}

// Judge 32 keys of each of a thread's two rows in straight code, so that loads of the mask's tensors wait for each
// other rarely, what depends on the key alone is computed once, and each bit has a constant place.
template <int kColumns8>
KJIT_DEVICE void judge_by_mask(KeepWords<kColumns8> (&keep)[2], const attention_variant_params &v, const Row (&rows)[2],
                               int first) {
#pragma unroll
  for (int w = 0; w < KeepWords<kColumns8>::kWords; w++) {
    uint32_t bits[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 32; i++) {
      if (32 * w + i >= KeepWords<kColumns8>::kBits) break;
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const int key = first + w * 128 + i / 2 * 8 + i % 2;
        bits[r] |= kjit_variant_mask(v.arguments, rows[r].batch, rows[r].head, rows[r].query, key) ? 1u << i : 0;
      }
    }
#pragma unroll
    for (int r = 0; r < 2; r++)
      keep[r].word[w] = bits[r];
  }
}

// What the caller's map says of a thread's scores: those that it lets count, and those that the mask is asked for.
template <int kColumns8>
KJIT_DEVICE void read_map(KeepWords<kColumns8> (&seen)[2], KeepWords<kColumns8> (&asked)[2],
                          const attention_variant_params &v, const Row (&rows)[2], int first_key, int first) {
  const int keys = v.map.key_rows, end = smaller(first_key + 8 * kColumns8, v.arguments.seq_kv);
  const unsigned char *states[2];
#pragma unroll
  for (int r = 0; r < 2; r++) {
    states[r] = map_states(v, rows[r].batch, rows[r].head, map_row_of(v, rows[r]));
    seen[r].keep_none();
    asked[r].keep_none();
  }
#pragma unroll 1
  for (int c = first_key / keys; c * keys < end; c++)
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int state = states[r][smaller(c, v.map.columns - 1)];
      const int low = c * keys - first, high = low + keys;
      if (state == VARIANT_FULL || (state == VARIANT_PARTIAL && !kMasked)) seen[r].add_between(low, high);
      if (state == VARIANT_PARTIAL && kMasked) asked[r].add_between(low, high);
    }
}

// Decide for a thread's two rows whose every key is judged by itself.
template <int kColumns8>
KJIT_DEVICE void judge_rows(KeepWords<kColumns8> (&keep)[2], const attention_variant_params &v, const Row (&rows)[2],
                            int first_key, int lane) {
  // The compiler is told that keys are not negative, so that it need not check whether an index is.
  const int first = (first_key + lane % 4 * 2) & kManyKeys;
  if constexpr (kMapped) {
    KeepWords<kColumns8> asked[2];
    read_map(keep, asked, v, rows, first_key, first);
    if (asked[0].any() || asked[1].any()) {
      KeepWords<kColumns8> judged[2];
      judge_by_mask(judged, v, rows, first);
#pragma unroll
      for (int r = 0; r < 2; r++)
        keep[r].add(judged[r], asked[r]);
    }
  } else {
    judge_by_mask(keep, v, rows, first);
  }
#pragma unroll
  for (int r = 0; r < 2; r++)
    keep[r].drop_from(rows[r].limit - first);
}

// Add each row's sink to a softmax, once: a logit that has no value. `head_of(m, r)` is a row's query head.
template <bool kLog2, typename Softmax, typename Output, typename HeadOf>
KJIT_DEVICE void add_sinks(Softmax &softmax, Output &o, const attention_variant_params &v, float scale_log2, int lane,
                           HeadOf head_of) {
  constexpr int kRowTiles = sizeof(softmax.max) / sizeof(softmax.max[0]);
  const float to_scores = kLog2 ? kLog2E / scale_log2 : 1.0f, to_log2 = kLog2 ? scale_log2 : kLog2E;
  typename Softmax::Rows sinks, now, factors;
#pragma unroll
  for (int m = 0; m < kRowTiles; m++)
#pragma unroll
    for (int r = 0; r < 2; r++) {
      sinks[m][r] = v.sinks[smaller(head_of(m, r), v.arguments.heads_q - 1)] * to_scores;
      now[m][r] = fmaxf(softmax.max[m][r], sinks[m][r]);
    }
  softmax.template set_max<false>(now, factors, scale_log2);
  softmax.rescale(o, factors);
#pragma unroll
  for (int m = 0; m < kRowTiles; m++)
#pragma unroll
    for (int r = 0; r < 2; r++)
      if (lane % 4 == 0) softmax.sum[m][r] += ex2_approx((sinks[m][r] - softmax.max[m][r]) * to_log2);
}

} // namespace variant
