// The consumer of ragged problems, derived from attention_sm90's: the steps and their products are the same.
//
// What differs: every tile has lengths of its own; a window may need a mask at both ends of a tile's key blocks; scores
// may be capped; sinks take part in the sums; and O is written row by row by the consumer's threads, because TMA would
// overwrite the next sequence's rows.
#pragma once
#include <kjit/ptx/math.cuh>

#include "attention_prefill_sm90/parts.cuh"
#include "attention_serving/element.cuh"

struct RaggedConsumer : PartConsumer {
  const RaggedLayout tiles_at;

  KJIT_DEVICE RaggedConsumer(const attention_prefill_params &params, RaggedLayout layout, int consumer, int thread)
      : PartConsumer(params, layout, consumer, thread), tiles_at(layout) {}

  KJIT_DEVICE void run() {
    wgmma_define_accumulators(o[0]); // a tile's first O = P V decides by `accumulate` whether it reads O
    if (cfg::kPingPong && consumer == cfg::kConsumers - 1) bar_arrive(turn_barrier(0), kTurnThreads);
    RaggedTile tile = {};
    bool has_turned = false; // the turn with which a tile begins was that of the last product of the tile before
    bool exists = next_tile(tile);
    while (exists) {
      if (cfg::kFew && !tile.has_rows(consumer)) {
        exists = pass_tile(tile, has_turned);
        has_turned = false;
        continue;
      }
      first_block(tile);
      exists = work_on_tiles(tile);
      has_turned = cfg::kOverlapsTiles;
    }
  }

private:
  // Work on a tile, whose first scores are there, and on those that follow as long as the end of one overlaps with the
  // start of the next. @return whether there is a further tile, which `tile` is then
  KJIT_DEVICE bool work_on_tiles(RaggedTile &tile) {
    while (true) {
      const int buffer = queries.slot;
      const int first_product = inner_blocks(tile, buffer);
      queries.advance();
      RaggedTile next = {};
      if constexpr (!cfg::kOverlapsTiles) {
        last_block(tile, buffer, first_product, true);
        const bool exists = next_tile(next);
        tile = next;
        return exists;
      }
      const bool exists = next_tile(next), goes_on = exists && next.has_rows(consumer);
      if (goes_on && (!cfg::kFew || tile.split == RaggedTile::kWhole)) {
        switch_tile(tile, next, buffer, first_product);
        tile = next;
        continue;
      }
      // Behind the end of a divided tile the next one begins anew, with a turn of its own.
      last_block(tile, buffer, first_product, !goes_on);
      tile = next;
      return exists;
    }
  }

  // Let a tile pass that this consumer has no rows of: give its buffers back, and take the turns that the others take.
  // `has_turned`: that of its first scores was taken. @return whether there is a further tile, which `tile` is then
  KJIT_DEVICE bool pass_tile(RaggedTile &tile, bool has_turned) {
    release_query(queries.slot);
    queries.advance();
    for (int block = tile.blocks.end - 1; block >= tile.blocks.first; block--) {
      mbarrier_wait_parity(at.keys_full(keys.slot), keys.parity);
      if (!has_turned) take_turn();
      has_turned = false;
      meet();
      release(at.keys_empty(keys.slot));
      keys.advance();
      if (block + 1 < tile.blocks.end) pass_values();
    }
    if constexpr (!cfg::kOverlapsTiles) {
      take_turn();
      pass_values();
      return next_tile(tile);
    }
    RaggedTile next = {};
    const bool exists = next_tile(next);
    if (!exists) take_turn();
    pass_values();
    tile = next;
    return exists;
  }

  KJIT_DEVICE void take_turn() const {
    wait_for_turn();
    pass_turn();
  }

  // A buffer is given back only when all threads of this consumer have waited for it: a thread that came later would
  // wait for a phase that is over. Where there are products, these order the threads.
  KJIT_DEVICE void meet() const { bar_sync(own_barrier(), kThreadsPerWarpgroup); }

  KJIT_DEVICE void pass_values() {
    mbarrier_wait_parity(at.values_full(values.slot), values.parity);
    meet();
    release_values();
  }

  // attention_sm90's, but for the places of K and V.
  KJIT_DEVICE void issue_scores(int buffer) {
    uint64_t q = wgmma_descriptor(at.query(buffer, consumer), 16);
    // Without this the descriptors of all steps would be computed once, kept in registers, and spilled.
    asm volatile("" : "+l"(q));
    const uint64_t k = cfg::KeyTile::keys(at.keys(keys.slot));
    wgmma_fence();
#pragma unroll
    for (int d = 0; d < kDepth; d++)
      Wgmma<cfg::Product, cfg::kKeyRows>::mma_async_ss(s[0], q + bands::step(cfg::kConsumerRows, d),
                                                       k + cfg::KeyTile::keys_step(d), d > 0);
    wgmma_commit_group();
  }

  KJIT_DEVICE void issue_output(int accumulate) {
    const uint64_t v = cfg::ValueTile::values(at.values(values.slot));
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kKeyTiles; k++)
      Wgmma<cfg::Product, cfg::kHeadDimV>::template mma_async_rs<true>(
          o[0], probabilities[k], v + cfg::ValueTile::values_step(k), k > 0 ? 1 : accumulate);
    wgmma_commit_group();
  }

  // Gatherers that do not wait for their copies cannot fence them off from wgmma, so whoever reads does.
  KJIT_DEVICE void wait_for_keys() const {
    mbarrier_wait_parity(at.keys_full(keys.slot), keys.parity);
    if constexpr (cfg::kGathers && !cfg::kNarrow) fence_async_proxy(); // keys
  }
  KJIT_DEVICE void wait_for_values() const {
    mbarrier_wait_parity(at.values_full(values.slot), values.parity);
    if constexpr (cfg::kGathers && !cfg::kNarrow) fence_async_proxy(); // values
  }

  KJIT_DEVICE void issue_both(int buffer, int accumulate) {
    wait_for_keys();
    wait_for_turn();
    issue_scores(buffer);
    wait_for_values();
    issue_output(accumulate);
    pass_turn();
  }

  // Wait for the next tile and its Q. @return false when there is no further tile
  KJIT_DEVICE bool next_tile(RaggedTile &tile) const {
    mbarrier_wait_parity(at.query_full(queries.slot), queries.parity);
    if constexpr (cfg::kConverts) {
      Chunk flags = {};
      if (lane == 0) flags = ld_shared_16(tiles_at.flags(queries.slot)); // as of the tile's coordinates
      tile.has_factors = broadcast_from_lane_0(flags.word[0] | flags.word[1] | flags.word[2]);
    }
    return load_ragged_tile(tiles_at.ragged_tile(queries.slot), lane, tile);
  }

  // Scores are there: undo what was done to rows of Q that do not fit fp16, and give the buffers back.
  KJIT_DEVICE void release_scores(const RaggedTile &tile, int block, int buffer) {
    if constexpr (cfg::kConverts) {
      if (tile.has_factors) multiply_factors(buffer);
    }
    release(at.keys_empty(keys.slot));
    keys.advance();
    if (cfg::kOutputBands > 0 && block == tile.blocks.first) release_query(buffer);
  }

  // Hides Consumer's: with factors each lane arrives for those that it has read.
  KJIT_DEVICE void release_query(int buffer) const {
    if (cfg::kConverts || lane == 0) mbarrier_arrive(at.query_empty(buffer));
  }

  KJIT_DEVICE void multiply_factors(int buffer) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const float factor =
          __uint_as_float(ld_shared_4(tiles_at.factors(buffer) + (consumer * cfg::kConsumerRows + own_row(r)) * 4));
#pragma unroll
      for (int n = 0; n < kColumns8; n++) {
        s[0][n][2 * r] *= factor;
        s[0][n][2 * r + 1] *= factor;
      }
    }
  }

  // Scores become cap * tanh(scale * score / cap), by tanh x = 1 - 2 / (exp(2 x) + 1), which is exact enough at both
  // ends.
  KJIT_DEVICE void cap(const RaggedTile &tile) {
    if constexpr (!cfg::kSoftcap) return;
    const float inner = 2.0f * (cfg::kNarrow ? v.scale_log2 * tile.descales.k : v.scale_log2) / v.softcap;
#pragma unroll
    for (int n = 0; n < kColumns8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        s[0][n][i] = v.softcap * (1.0f - 2.0f * rcp_approx(ex2_approx(s[0][n][i] * inner) + 1.0f));
  }

  // Scores of keys that a row does not see, or that do not exist, become -inf.
  KJIT_DEVICE void mask(const RaggedTile &tile, int block) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const Seen seen = seen_by(v, tile.s, tile.first_query(consumer) + own_row(r) / cfg::kPackGqa);
      const int first = block * cfg::kKeyRows + lane % 4 * 2 - seen.low;
      const unsigned count = (unsigned)at_least_0(seen.high - seen.low);
#pragma unroll
      for (int n = 0; n < kColumns8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++)
          if ((unsigned)(first + n * 8 + i) >= count) s[0][n][2 * r + i] = masked_score();
    }
  }

  // A tile's first key block, when no product of the tile before it is left to overlap with.
  KJIT_DEVICE void first_block(const RaggedTile &tile) {
    wait_for_keys();
    wait_for_turn();
    issue_scores(queries.slot);
    pass_turn();
    wgmma_wait_group<0>();
    release_scores(tile, tile.blocks.end - 1, queries.slot);
    first_softmax(softmax, tile);
    round_scores();
  }

  KJIT_DEVICE void first_softmax(Softmax &state, const RaggedTile &tile) {
    cap(tile);
    mask(tile, tile.blocks.end - 1);
    typename Softmax::Rows now, factors;
    state.template find_maximum<true>(s, now, p.scale, scale_log2(tile));
    state.template set_max<true>(now, factors, scale_log2(tile));
    state.template exponentiate<true>(s, scale_log2(tile));
  }

  // The steps between a tile's first scores and its last product with V. Blocks that hold keys behind those that every
  // row sees need a mask, and so do, with a window, blocks in front of these keys.
  // @return 0 when O holds nothing yet, else 1: what the last product's `accumulate` has to be
  KJIT_DEVICE int inner_blocks(const RaggedTile &tile, int buffer) {
    const int query = tile.first_query(consumer), first = tile.blocks.first;
    const int right = at_least_0(seen_by(v, tile.s, query).high) / cfg::kKeyRows;
    const int left = (seen_by(v, tile.s, query + cfg::kConsumerQueries - 1).low + cfg::kKeyRows - 1) / cfg::kKeyRows;
    int block = tile.blocks.end - 2, accumulate = 0;
    while (true) {
#pragma unroll 1
      for (; block >= first && (block >= right || block < left); block--) {
        step<true>(tile, buffer, block, accumulate);
        accumulate = 1;
      }
      if (block < first) return accumulate;
#pragma unroll 1
      for (; block >= left && block >= first; block--) {
        step<false>(tile, buffer, block, accumulate);
        accumulate = 1;
      }
    }
  }

  // One step: the scores of `block` together with the product O += P V of the block before it.
  template <bool kMasked> KJIT_DEVICE void step(const RaggedTile &tile, int buffer, int block, int accumulate) {
    issue_both(buffer, accumulate);
    wait_for_scores();
    release_scores(tile, block, buffer);
    cap(tile);
    if constexpr (kMasked) mask(tile, block);
    wgmma_wait_group<0>();
    release_values();
    next_softmax<kMasked>(scale_log2(tile));
  }

  // The last product O += P V of `tile` together with the first scores of `next`.
  KJIT_DEVICE void switch_tile(const RaggedTile &tile, const RaggedTile &next, int buffer, int accumulate) {
    issue_both(queries.slot, accumulate);
    wait_for_scores();
    release_scores(next, next.blocks.end - 1, queries.slot);
    Softmax following;
    first_softmax(following, next);
    wgmma_wait_group<0>();
    release_values();
    store<false>(tile, buffer);
    softmax = following;
    round_scores();
  }

  // The last product O += P V of a tile, when nothing of the next tile overlaps with it.
  KJIT_DEVICE void last_block(const RaggedTile &tile, int buffer, int accumulate, bool takes_turn) {
    wait_for_values();
    if (takes_turn) wait_for_turn();
    issue_output(accumulate);
    if (takes_turn) pass_turn();
    wgmma_wait_group<0>();
    release_values();
    store<true>(tile, buffer);
  }

  // Divide O by the sums, and write the log-sum-exp. Everything is relative to base 2 here.
  KJIT_DEVICE void finish_rows(const RaggedTile &tile) {
    typename Softmax::Rows factors;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const Place row = place_of(tile, own_row(r));
      float total = quad_sum(softmax.sum[0][r]);
      float maximum = total == 0.0f ? masked_score() : softmax.max[0][r] * scale_log2(tile);
      float factor = 1.0f;
      if (v.sinks) add_sink(row.head, maximum, total, factor);
      factors[0][r] = total == 0.0f ? 0.0f : factor / total;
      if constexpr (cfg::kNarrow) factors[0][r] *= tile.descales.v;
      if (v.lse && lane % 4 == 0 && row.query < tile.s.rows)
        v.lse[tile.sequence() * v.lse_batch_stride + row.head * v.lse_head_stride + tile.s.first_row + row.query] =
            total == 0.0f ? masked_score() : (maximum + lg2_approx(total)) * kLn2;
    }
    Softmax::rescale(o, factors);
  }

  // A sink is one more score, without a value. `factor`: what O is multiplied by.
  KJIT_DEVICE void add_sink(int head, float &maximum, float &total, float &factor) const {
    const float logit = v.sinks_fp32 ? ((const float *)v.sinks)[head]
                                     : element_value(cfg::Element{}, ((const unsigned short *)v.sinks)[head]);
    const float sink = logit * kLog2E, higher = fmaxf(maximum, sink);
    factor = maximum == masked_score() ? 0.0f : ex2_approx(maximum - higher);
    total = total * factor + (sink == masked_score() ? 0.0f : ex2_approx(sink - higher));
    maximum = higher;
  }

  // Store a tile's O through shared memory, so that whole rows are written. Every warp writes and reads its own 16
  // rows. Without shared memory of its own, O goes through this consumer's rows of the Q buffer, which no product reads
  // any more.
  template <bool kMayBePart> KJIT_DEVICE void store(const RaggedTile &tile, int buffer) {
    constexpr int kAll = cfg::bands(cfg::kHeadDimV), kAtOnce = cfg::kOutputBands > 0 ? cfg::kOutputBands : kAll;
    const uint32_t out = cfg::kOutputBands > 0 ? at.output(consumer) : at.query(buffer, consumer);
    if (cfg::kFew && kMayBePart && tile.split != RaggedTile::kWhole && !join_parts(tile)) {
      if constexpr (cfg::kOutputBands == 0) release_query(buffer);
      return;
    }
    finish_rows(tile);
#pragma unroll
    for (int band = 0; band < kAll; band += kAtOnce) {
      const int end = band + kAtOnce < kAll ? band + kAtOnce : kAll;
      __syncwarp(); // the bands before, or the tile before, have been read
      output_to_shared(out, band, end);
      __syncwarp();
      write_rows(tile, out, band, end);
    }
    if constexpr (cfg::kOutputBands > 0) return;
    fence_async_proxy(); // TMA writes the next Q there
    __syncwarp();
    release_query(buffer);
  }

  // Copy bands first to end - 1 of this warp's rows from shared memory to O, 16 bytes a lane.
  KJIT_DEVICE void write_rows(const RaggedTile &tile, uint32_t out, int first, int end) const {
    constexpr int kChunks = SM90_CHUNK_COLUMNS / kChunkElements; // of a band's row
#pragma unroll
    for (int i = 0; i < 16 * kChunks / kLanesPerWarp; i++) {
      const int in_warp = i * (kLanesPerWarp / kChunks) + lane / kChunks, chunk = lane % kChunks;
      const int own = warp * 16 + in_warp;
      const Place row = place_of(tile, own);
      if (row.query >= tile.s.rows) continue;
      const int64_t at_row = tile.sequence() * v.o_stride.batch +
                             (int64_t)(tile.s.first_row + row.query) * v.o_stride.seq + row.head * v.o_stride.head;
      char *const to = (char *)v.o + at_row * 2;
      const uint32_t from = out + own * cfg::kRowBytes + ((chunk ^ own % 8) << 4);
      for (int band = first; band < end; band++) {
        const int column = band * SM90_CHUNK_COLUMNS + chunk * kChunkElements;
        if (column < cfg::kHeadDimV)
          st_global_16(to + column * 2, ld_shared_16(from + (band - first) * cfg::kBandBytes));
      }
    }
  }
};
