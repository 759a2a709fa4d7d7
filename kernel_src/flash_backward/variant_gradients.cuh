// The gradients of what a variant's score function reads from tensors. Of each pair of a query and a key an element
// that the score reads there gets dS times the derivative of the score by the element, where dS is by the changed
// score.
//
// Elements that all pairs of a row, of a column, or of a head share are summed within a warp first, because additions
// to one address run one after the other: kjit_variant_gradient of the generated header says along which of both an
// element changes. Sums of a head stay in registers until the end. Additions are fp32 atomics, in any order.
//
// All lanes of a warp call these functions together. `Block` is that of flash_backward.cu.
#pragma once
#include <kjit/types.cuh>
#include <kjit/warp.cuh>

#include "flash_backward/config.cuh"
#include "flash_backward/products.cuh"
#include "flash_backward/variant.cuh"

#ifndef KJIT_VARIANT_GRADIENTS
#define KJIT_VARIANT_GRADIENTS 0
template <int which> struct kjit_variant_gradient;
#endif

namespace variant {

// What a thread has summed, of the elements that all pairs of a head share.
struct Totals {
  float of[KJIT_VARIANT_GRADIENTS > 0 ? KJIT_VARIANT_GRADIENTS : 1] = {};
};

// A load of the score, on one step of a warp.
template <typename Block, int kWhich> struct Reader {
  using Gradient = kjit_variant_gradient<kWhich>;

  const Block &block;
  const kjit_variant_tensor_argument &to;
  const int head, tile;
  long long element = 0;

  KJIT_DEVICE Reader(const Block &block, int head, int tile)
      : block(block), to(block.gradients[Gradient::tensor]), head(head), tile(tile) {}

  // What a pair adds, to the element `element`. An infinite derivative counts for nothing where dS is 0.
  KJIT_DEVICE float part(float product, float ds, int m, int n, int i) {
    int query, key;
    pair_of(block, m, n, i, tile, query, key);
    const attention_variant_params &v = block.hooks.v;
    const float factor = Gradient::at(v.arguments, to, product * v.score_scale, blockIdx.z, head,
                                      block.hooks.query_of(query), block.hooks.key_of(key), element);
    return ds != 0.0f ? ds * factor : 0.0f;
  }

  KJIT_DEVICE void add(float sum) const {
    if (sum != 0.0f) atomicAdd((float *)to.data + element, sum);
  }

  KJIT_DEVICE void add_pairs(const products::Scores &product, const products::Scores &ds) {
#pragma unroll
    for (int m = 0; m < cfg::kRowTiles; m++)
#pragma unroll
      for (int n = 0; n < cfg::kStepTiles * 2; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
          add(part(product[m][n][i], ds[m][n][i], m, n, i));
  }

  // The four lanes of a quad have a row's pairs.
  KJIT_DEVICE void add_rows(const products::Scores &product, const products::Scores &ds) {
#pragma unroll
    for (int m = 0; m < cfg::kRowTiles; m++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        float sum = 0.0f;
#pragma unroll
        for (int n = 0; n < cfg::kStepTiles * 2; n++)
#pragma unroll
          for (int i = 2 * r; i < 2 * r + 2; i++)
            sum += part(product[m][n][i], ds[m][n][i], m, n, i);
        sum = quad_sum(sum);
        if (block.lane % 4 == 0) add(sum);
      }
  }

  // Lanes that are equal modulo 4 have a column's pairs.
  KJIT_DEVICE void add_columns(const products::Scores &product, const products::Scores &ds) {
#pragma unroll
    for (int n = 0; n < cfg::kStepTiles * 2; n++)
#pragma unroll
      for (int j = 0; j < 2; j++) {
        float sum = 0.0f;
#pragma unroll
        for (int m = 0; m < cfg::kRowTiles; m++)
#pragma unroll
          for (int i = j; i < 4; i += 2)
            sum += part(product[m][n][i], ds[m][n][i], m, n, i);
        sum = sum_of_column(sum);
        if (block.lane < 4) add(sum);
      }
  }

  KJIT_DEVICE float total(const products::Scores &product, const products::Scores &ds) {
    float sum = 0.0f;
#pragma unroll
    for (int m = 0; m < cfg::kRowTiles; m++)
#pragma unroll
      for (int n = 0; n < cfg::kStepTiles * 2; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
          sum += part(product[m][n][i], ds[m][n][i], m, n, i);
    return sum;
  }

  static KJIT_DEVICE float sum_of_column(float x) {
#pragma unroll
    for (int mask = 16; mask >= 4; mask /= 2)
      x += __shfl_xor_sync(0xffffffffu, x, mask);
    return x;
  }
};

// A step's part of all gradients, of its products and of dS.
template <int kWhich = 0, typename Block>
KJIT_DEVICE void add_step(Block &block, const products::Scores &product, const products::Scores &ds, int head,
                          int tile) {
  if constexpr (kWhich < KJIT_VARIANT_GRADIENTS) {
    using Gradient = kjit_variant_gradient<kWhich>;
    Reader<Block, kWhich> reader(block, head, tile);
    if (reader.to.data != nullptr) {
      if constexpr (Gradient::along_q && Gradient::along_k)
        reader.add_pairs(product, ds);
      else if constexpr (Gradient::along_q)
        reader.add_rows(product, ds);
      else if constexpr (Gradient::along_k)
        reader.add_columns(product, ds);
      else
        block.totals.of[kWhich] += reader.total(product, ds);
    }
    add_step<kWhich + 1>(block, product, ds, head, tile);
  }
}

// At the end: the sums of a head.
template <int kWhich = 0, typename Block> KJIT_DEVICE void add_totals(const Block &block) {
  if constexpr (kWhich < KJIT_VARIANT_GRADIENTS) {
    using Gradient = kjit_variant_gradient<kWhich>;
    if constexpr (!Gradient::along_q && !Gradient::along_k) {
      Reader<Block, kWhich> reader(block, block.own_head, 0);
      if (reader.to.data != nullptr) {
        (void)reader.part(0.0f, 0.0f, 0, 0, 0); // finds the element
        const float sum = reader.sum_of_column(quad_sum(block.totals.of[kWhich]));
        if (block.lane == 0) reader.add(sum);
      }
    }
    add_totals<kWhich + 1>(block);
  }
}

} // namespace variant
