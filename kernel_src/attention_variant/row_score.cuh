// A score function that folds into the exponent: slope * core(inner * s) + term, where the core is s itself or a
// function of it, such as tanh, and the term is linear along a row, or a tensor's elements, or anything else.
//
// What is the same for all keys of a row is computed once a tile (RowScore::begin()). A score then costs an FMA, and
// one more where its term is not the same for all keys of the row.
//
// tanh takes the exponent unit as often as the exponent itself, which that unit has no room for beside products of few
// columns. So scores whose tanh has an argument of at most 0.6 can take an odd polynomial instead (of<true>()): three
// FMAs. The caller decides by the columns.
#pragma once
#include <kjit/ptx/cp_async.cuh>
#include <kjit/ptx/ldmatrix.cuh>

#include "attention_variant/hooks.cuh"

namespace variant {

// The terms of a thread's scores of one row, with kTiled: a word for two neighbouring keys. They are loaded before the
// scores are there, because loads from the loop over scores would be waited for one after the other.
template <int kColumns8> struct TermPairs {
  uint32_t pair[kColumns8];

  // kWhole: there is a term for every key of the block. The last two arguments are for StagedTerms.
  template <bool kWhole>
  KJIT_DEVICE void load(const attention_variant_params &v, const Row &row, int first_key, int lane, uint32_t = 0,
                        int = 0) {
#if KJIT_VARIANT_TILE
    const char *const terms = kjit_variant_tile_row(v.arguments, row.batch, row.head, row.query);
    const kjit_variant_tensor_argument &tensor = v.arguments.tensors[KJIT_VARIANT_TILE_TENSOR];
    const int most = tensor.size[KJIT_VARIANT_TILE_AXES - 1] - 2, first = first_key + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < kColumns8; n++)
      if constexpr (kWhole)
        pair[n] = ((const uint32_t *)(terms + 2 * (int64_t)first))[4 * n];
      else
        pair[n] = *(const uint32_t *)(terms + 2 * (int64_t)smaller(first + 8 * n, most));
#endif
  }

  KJIT_DEVICE float at(int column) const {
    float low = 0, high = 0;
#if KJIT_VARIANT_TILE
    kjit_variant_tile_pair(pair[column / 8], low, high);
#endif
    return column % 2 ? high : low;
  }
};

// The same terms in shared memory, where copy_terms() brought them, in rows kRowBytes apart of which 16 belong to a
// warp. They are read four column tiles at a time, so columns must rise.
template <int kColumns8, int kRowBytes> struct StagedTerms {
  uint32_t chunk; // where this lane's 16 bytes of the first four column tiles are
  uint32_t back;  // what the address goes back by where a row ends with two column tiles
  mutable uint32_t word[4];

  // `rows`: shared::cta address of the warp's first row; r: which of a thread's two rows
  template <bool>
  KJIT_DEVICE void load(const attention_variant_params &, const Row &, int, int lane, uint32_t rows, int r) {
    static_assert(kColumns8 % 2 == 0, "a step has a multiple of 16 keys");
    chunk = rows + (8 * r + lane % 8) * kRowBytes + lane / 8 * 16;
    back = lane / 16 * 32;
  }

  KJIT_DEVICE float at(int column) const {
    float low = 0, high = 0;
#if KJIT_VARIANT_TILE
    const int tile = column / 8;
    if (column % 32 == 0) ldmatrix_x4(word, chunk + 16 * tile - (tile + 4 <= kColumns8 ? 0 : back));
    kjit_variant_tile_pair(word[tile % 4], low, high);
#endif
    return column % 2 ? high : low;
  }
};

template <bool kStaged, int kColumns8, int kRowBytes> struct TermsOf { using Type = TermPairs<kColumns8>; };
template <int kColumns8, int kRowBytes> struct TermsOf<true, kColumns8, kRowBytes> {
  using Type = StagedTerms<kColumns8, kRowBytes>;
};

// The terms of a row in the tensor, from key 0 on; NULL where they do not lie in one.
KJIT_DEVICE const char *row_terms(const attention_variant_params &v, const Row &row) {
#if KJIT_VARIANT_TILE
  return kjit_variant_tile_row(v.arguments, row.batch, row.head, row.query);
#else
  return nullptr;
#endif
}

// Bytes of a row of the tensor.
KJIT_DEVICE int row_term_bytes(const attention_variant_params &v) {
#if KJIT_VARIANT_TILE
  return 2 * v.arguments.tensors[KJIT_VARIANT_TILE_TENSOR].size[KJIT_VARIANT_TILE_AXES - 1];
#else
  return 0;
#endif
}

// Copy kBytes of a row's terms, which begin at `terms`, from byte `first` on, to shared memory at `to`, by four
// neighbouring lanes. What lies beyond the row's `end` bytes is not read, unless kWhole says that nothing does; the
// terms before it are copied instead, for keys that no row sees.
template <int kBytes, bool kWhole>
KJIT_DEVICE void copy_terms(const char *terms, int first, int end, uint32_t to, int lane) {
  constexpr int kLanes = 4;
  const int own = lane % kLanes * kChunkBytes;
#pragma unroll
  for (int i = 0; i < kBytes; i += kLanes * kChunkBytes) {
    if (i + kLanes * kChunkBytes > kBytes && i + own >= kBytes) continue;
    cp_async_16(to + own + i, kWhole ? terms + first + own + i : terms + smaller(first + own + i, end - kChunkBytes));
  }
}

// A row's score function in base 2, slope * core(inner * s) + term: what is the same for all keys of the row. Used with
// kFolded alone.
struct RowScore {
  static constexpr float kLeastSlope = 1e-20f; // a score times this is 0 beside any term
#if KJIT_VARIANT_TANH
  // slope * tanh(inner * s) = s * (odd[0] + u * (odd[1] + u * odd[2])) where u = s * s is at most `near`
  float odd[3], near;
#endif
  float slope;      // of the core or, where that is s itself, of the unscaled score; times log2(e)
  float inner;      // of the unscaled score; with a core
  float term, step; // of key `limit - 1`, and what one more key adds, times log2(e); where the term is linear

  // kDividesBySlope: add_terms() will be called.
  template <bool kDividesBySlope = false> KJIT_DEVICE void begin(const attention_variant_params &v, const Row &row) {
#if KJIT_VARIANT_AFFINE || KJIT_VARIANT_CORE
    slope = kjit_variant_slope(v.arguments, row.batch, row.head, row.query) * kLog2E;
#if KJIT_VARIANT_CORE
    inner = kjit_variant_inner(v.arguments, row.batch, row.head, row.query) * v.score_scale;
#if KJIT_VARIANT_TANH
    begin_near();
#endif
#else
    slope *= v.score_scale;
#endif
    if (kDividesBySlope && fabsf(slope) < kLeastSlope) slope = kLeastSlope;
#if KJIT_VARIANT_LINEAR
    term = kjit_variant_term(v.arguments, row.batch, row.head, row.query, row.limit - 1) * kLog2E;
#endif
#if KJIT_VARIANT_LINEAR == 1
    step = kjit_variant_term_step(v.arguments, row.batch, row.head, row.query) * kLog2E;
#endif
#endif
  }

  // The terms of a block's keys, less a number: at(column) for columns that count from the thread's first key.
  template <typename Pairs> struct Terms {
    const RowScore &score;
    const attention_variant_params &v;
    const Row &row;
    const Pairs &pairs;
    int first;
    float offset;

    KJIT_DEVICE Terms(const RowScore &score, const attention_variant_params &v, const Row &row, const Pairs &pairs,
                      int first, float less)
        : score(score), v(v), row(row), pairs(pairs), first(first) {
#if KJIT_VARIANT_LINEAR
      offset =
          (KJIT_VARIANT_LINEAR == 2 ? score.term : fmaf(score.step, (float)(first - (row.limit - 1)), score.term)) -
          less;
#else
      offset = -less;
#endif
    }
    KJIT_DEVICE float at(int column) const {
#if KJIT_VARIANT_LINEAR
      return KJIT_VARIANT_LINEAR == 2 ? offset : fmaf(score.step, (float)column, offset);
#elif KJIT_VARIANT_AFFINE || KJIT_VARIANT_CORE
      if constexpr (kTiled) return fmaf(pairs.at(column), kLog2E, offset);
      return fmaf(kjit_variant_term(v.arguments, row.batch, row.head, row.query, first + column), kLog2E, offset);
#else
      return offset;
#endif
    }
  };

  // The score in base 2 of an unscaled score, with a term as Terms gives it. With kByPolynomial it counts only where
  // the score's square, to whose bits `farthest` is raised, is at most `near`.
  template <bool kByPolynomial> KJIT_DEVICE float of(float s, float term_less, int &farthest) const {
#if KJIT_VARIANT_TANH
    if constexpr (kByPolynomial) {
      const float u = s * s;
      farthest = larger(farthest, __float_as_int(u)); // squares are ordered as their bits are
      return fmaf(s, fmaf(u, fmaf(u, odd[2], odd[1]), odd[0]), term_less);
    }
#endif
#if KJIT_VARIANT_CORE
    return fmaf(kjit_variant_core(s * inner), slope, term_less);
#else
    return fmaf(s, slope, term_less);
#endif
  }

#if KJIT_VARIANT_TANH
  // The coefficients of tanh(x) / x in x * x up to 0.36, whose error is 2^-13.9 of the result: less than the
  // instruction's. Where one is not finite, as with a cap of next to nothing, all scores are left to the instruction.
  KJIT_DEVICE void begin_near() {
    const float square = inner * inner;
    odd[0] = slope * inner * 0.99993688f;
    odd[1] = slope * inner * square * -0.33012804f;
    odd[2] = slope * inner * square * (square * 0.10839797f);
    const float sum = odd[0] + odd[1] + odd[2];
    near = sum - sum == 0.0f ? 0.36f / square : -1.0f;
  }
#endif

  // Replace the scores of a thread's r-th row by core + term / slope, which times the slope are the scores in base 2.
  template <typename Pairs, int kColumns8>
  KJIT_DEVICE void add_terms(float (&s)[kColumns8][4], int r, const Pairs &pairs) const {
    const float inverse = kLog2E / slope;
#pragma unroll
    for (int n = 0; n < kColumns8; n++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        float &score = s[n][2 * r + i];
#if KJIT_VARIANT_CORE
        score = kjit_variant_core(score * inner);
#endif
        score = fmaf(pairs.at(8 * n + i), inverse, score);
      }
  }

  // The scores in base 2, after add_terms(); those that do not count become -inf.
  template <bool kPartial, int kColumns8>
  KJIT_DEVICE void scale_sums(float (&s)[kColumns8][4], int r, const KeepWords<kColumns8> &keep) const {
#pragma unroll
    for (int n = 0; n < kColumns8; n++)
#pragma unroll
      for (int i = 0; i < 2; i++)
        s[n][2 * r + i] = kPartial && !keep.keeps(n, i) ? masked_score() : s[n][2 * r + i] * slope;
  }

  // As variant::apply().
  template <bool kPartial, typename Pairs, int kColumns8>
  KJIT_DEVICE void apply(float (&s)[kColumns8][4], int r, const attention_variant_params &v, const Row &row,
                         const KeepWords<kColumns8> &keep, const Pairs &pairs, int first_key, int lane) const {
    const Terms<Pairs> terms(*this, v, row, pairs, first_key + lane % 4 * 2, 0.0f);
    int unread = 0;
#pragma unroll
    for (int n = 0; n < kColumns8; n++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        float &score = s[n][2 * r + i];
        score = of<false>(score, terms.at(8 * n + i), unread);
        if (kPartial && !keep.keeps(n, i)) score = masked_score();
      }
  }
};

} // namespace variant
