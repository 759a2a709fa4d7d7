// The block of threads of flash_forward that computes an attention variant: the caller's score and mask functions.
//
// It differs from the dense one (Block in flash_forward.cu, which it is derived from) in three things. The key blocks
// are those of a walk (attention_variant/hooks.cuh), which every warp begins for itself. A step's mask is decided into
// keep words before the scores are computed. And the scores go through the variant's function before the softmax.
#pragma once
#include "attention_variant/block_walk.cuh"
#include "attention_variant/row_score.cuh"

namespace {

struct VariantBlock : Block {
  static constexpr int kColumns8 = cfg::kKeyTiles * 2;
  using Keep = variant::KeepWords<kColumns8>[cfg::kRowTiles][2];

  const attention_variant_params &hooks;
  int loaded_k, loaded_v; // the key blocks at which the cursors of K and V stand

  KJIT_DEVICE VariantBlock(const flash_forward_variant_params &params, uint32_t q_tile)
      : Block(params.base, q_tile), hooks(params.variant), loaded_k(key_blocks(params.base) - 1), loaded_v(loaded_k) {}

  KJIT_DEVICE variant::Row row(int query) const {
    return variant::Row(hooks, blockIdx.z, blockIdx.y, query, keys_seen(p, query));
  }
  // Terms that lie in a tensor two to a word are loaded as such: as single elements their addresses would be computed
  // one by one, and spilled.
  static constexpr bool kInPairs = variant::kTiled && cfg::kOptimizedSoftmax;

  // The r-th query of this thread in its m-th row tile.
  KJIT_DEVICE static int own_query(const WarpRows &rows, int m, int r) {
    return rows.first + m * 16 + r * 8 + rows.lane / 4;
  }

  // Start loading the key block j, wherever the cursor stands.
  template <typename Source> KJIT_DEVICE void load_block(Source &source, int &stands_at, int j) {
    source.cursor.move((j - stands_at) * cfg::kKeyRows);
    stands_at = j - 1; // load() moves the cursor on
    const int valid_rows = p.seq_kv - j * cfg::kKeyRows;
    if (valid_rows < cfg::kKeyRows)
      source.template load<true>(valid_rows);
    else
      source.template load<false>(cfg::kKeyRows);
  }

  KJIT_DEVICE void decide(Keep &keep, int j) const {
    const WarpRows rows(read_tid_x());
#pragma unroll
    for (int m = 0; m < cfg::kRowTiles; m++)
#pragma unroll
      for (int r = 0; r < 2; r++)
        keep[m][r].decide(hooks, row(own_query(rows, m, r)), j * cfg::kKeyRows, rows.lane);
  }

  template <bool kPartial> KJIT_DEVICE void apply(fragments::Scores &s, const Keep &keep, int j) const {
    const WarpRows rows(read_tid_x());
#pragma unroll
    for (int m = 0; m < cfg::kRowTiles; m++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const variant::Row own = row(own_query(rows, m, r));
        if constexpr (kInPairs)
          apply_pairs<kPartial>(s[m], r, own, keep[m][r], j * cfg::kKeyRows, rows.lane);
        else
          variant::apply<kPartial, cfg::kOptimizedSoftmax>(s[m], r, hooks, own, keep[m][r], j * cfg::kKeyRows,
                                                           rows.lane);
      }
  }

  template <bool kPartial>
  KJIT_DEVICE void apply_pairs(float (&s)[kColumns8][4], int r, const variant::Row &own,
                               const variant::KeepWords<kColumns8> &keep, int first_key, int lane) const {
    variant::RowScore score;
    variant::TermPairs<kColumns8> pairs;
    score.begin(hooks, own);
    pairs.template load<!kPartial>(hooks, own, first_key, lane);
    score.template apply<kPartial>(s, r, hooks, own, keep, pairs, first_key, lane);
  }

  // The factor of the scores: 1 where they were scaled before the variant's function.
  KJIT_DEVICE float scale() const {
    return variant::kScored && !cfg::kOptimizedSoftmax ? 1.0f : p.scale;
  }

  // One block of keys, j; `following` is the next one, or kNoBlock. kPartial: some row may not see all of its keys.
  template <bool kPartial> KJIT_DEVICE void step(int j, int following) {
    Keep keep;
    if constexpr (!cfg::kEagerLoads) load_block(k, loaded_k, j);
    if constexpr (kPartial) decide(keep, j);
    wait_for_copies<0>();
    __syncthreads(); // K of block j is visible to all; everybody has finished with V of the block before
    if constexpr (cfg::kEagerLoads) load_block(v, loaded_v, j);

    float s[cfg::kRowTiles][kColumns8][4] = {};
    fragments::scores(s, held_q, at, j);

    if constexpr (cfg::kEagerLoads) {
      wait_for_copies<0>();
      __syncthreads(); // V of block j is visible to all; everybody has finished with K of block j
      if (following >= 0) load_block(k, loaded_k, following);
    } else {
      load_block(v, loaded_v, j);
    }
    apply<kPartial>(s, keep, j);
    Softmax::Rows now, factors;
    if (softmax.find_maximum<false>(s, now, scale(), p.scale_log2)) {
      softmax.set_max<false>(now, factors, p.scale_log2);
      softmax.rescale(o, factors);
    }
    softmax.exponentiate<false>(s, p.scale_log2);
    uint32_t probabilities[cfg::kRowTiles][cfg::kKeyTiles][4];
    fragments::round_scores(probabilities, s);
    if constexpr (!cfg::kEagerLoads) {
      wait_for_copies<0>();
      __syncthreads(); // V of block j is visible to all; everybody has finished with K of block j
    }
    fragments::accumulate(o, probabilities, at, j);
  }

  KJIT_DEVICE void begin_walk(variant::BlockWalk &walk) const {
    const int first = query_tile() * cfg::kQueryRows;
    const int list = blockIdx.z * hooks.lists.batch_stride + blockIdx.y * hooks.lists.head_stride + query_tile();
    walk.begin<cfg::kKeyRows>(
        hooks, list, cfg::kQueryRows, threadIdx.x % kLanesPerWarp, [&](int i) { return row(first + i); },
        [&](int i) { return first + i < p.seq_q; });
  }

  KJIT_DEVICE void run() {
    variant::BlockWalk walk;
    load_query();
    begin_walk(walk);
    int entry = walk.next();
    if constexpr (cfg::kEagerLoads) {
      load_block(k, loaded_k, entry / 2);
      wait_for_copies<1>(); // Q is there, K on its way
    } else {
      wait_for_copies<0>();
    }
    hold_query();
    clear_output();
    softmax.start();
#pragma unroll 1
    while (entry >= 0) {
      const int following = walk.next();
      if (entry % 2)
        step<false>(entry / 2, following < 0 ? following : following / 2);
      else
        step<true>(entry / 2, following < 0 ? following : following / 2);
      entry = following;
    }
    if constexpr (variant::kSinks)
      variant::add_sinks<cfg::kOptimizedSoftmax>(softmax, o, hooks, p.scale_log2, threadIdx.x % kLanesPerWarp,
                                                 [&](int, int) { return (int)blockIdx.y; });
  }
};

using Parameters = flash_forward_variant_params;
using KernelBlock = VariantBlock;

} // namespace
