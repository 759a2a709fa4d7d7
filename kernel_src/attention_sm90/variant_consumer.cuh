// The consumer of an attention variant, derived from the dense one: the steps and their products are the same.
//
// What differs: which key block a step is for stands in the entry that the producer left with the K buffer; a step's
// mask is decided into keep words before its products are issued; and where the variant has a score function, the
// scores go through it when no product is in flight, because it may branch or call (ptxas serialises products across
// either).
#pragma once
#include "attention_sm90/consumer.cuh"
#include "attention_sm90/variant_tile.cuh"

struct VariantConsumer : Consumer {
  using Keep = variant::KeepWords<kColumns8>;
  // Masks alone are straight code, which may run while O is in flight.
  static constexpr bool kAppliedInFlight = !variant::kScored;

  const attention_variant_params &v;
  int entry = 0; // of the step that is next: 4 * block + 2 * (seen as a whole) + (the tile's last)

  KJIT_DEVICE VariantConsumer(const attention_sm90_variant_params &params, Layout layout, int consumer, int thread)
      : Consumer(params.base, layout, consumer, thread), v(params.variant) {}

  KJIT_DEVICE void run() {
    wgmma_define_accumulators(o[0]); // a tile's first O = P V decides by `accumulate` whether it reads O
    if (cfg::kPingPong && consumer == cfg::kConsumers - 1) bar_arrive(turn_barrier(0), kTurnThreads);
    Tile tile;
    if (!next_tile(tile)) return;
    first_block(tile);
    while (true) {
      const int buffer = queries.slot;
      const int first_product = inner_blocks(tile, buffer);
      queries.advance();
      Tile next;
      if constexpr (cfg::kOverlapsTiles) {
        release_stored(); // the next tile's Q may wait for this buffer
        if (!next_tile(next)) {
          last_block(tile, buffer, first_product);
          break;
        }
        switch_tile(tile, next, buffer, first_product);
      } else {
        last_block(tile, buffer, first_product);
        release_stored();
        if (!next_tile(next)) break;
        first_block(next);
      }
      tile = next;
    }
    if (thread == 0) cp_async_bulk_wait_group<0>(); // shared memory must live until TMA has read it
  }

private:
  KJIT_DEVICE variant::Row row(const Tile &tile, int r) const {
    return variant_row(v, p, tile, output_row(p, tile, consumer, own_row(r)));
  }

  // Wait for the next K, and read which block it is. All threads: what comes next depends on it.
  KJIT_DEVICE void read_entry() {
    mbarrier_wait_parity(at.keys_full(keys.slot), keys.parity);
    entry = broadcast_from_lane_0(ld_shared_4(at.entry(keys.slot)));
  }
  KJIT_DEVICE int first_key() const { return entry / 4 * cfg::kKeyRows; }
  KJIT_DEVICE bool is_full() const { return entry / 2 % 2; }
  KJIT_DEVICE bool is_last() const { return entry % 2; }

  KJIT_DEVICE void decide(const Tile &tile, Keep (&keep)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; r++)
      keep[r].decide(v, row(tile, r), first_key(), lane);
  }

  template <bool kPartial> KJIT_DEVICE void apply(const Tile &tile, const Keep (&keep)[2]) {
#pragma unroll
    for (int r = 0; r < 2; r++)
      variant::apply<kPartial, true>(s[0], r, v, row(tile, r), keep[r], first_key(), lane);
  }

  KJIT_DEVICE void release_own_scores(int buffer) {
    release(at.keys_empty(keys.slot));
    keys.advance();
    if (cfg::kOutputBands > 0 && is_last()) release_query(buffer);
  }

  // Decide a tile's first step, in which every kind of block takes the same code.
  KJIT_DEVICE void decide_first(const Tile &tile, Keep (&keep)[2]) {
    read_entry();
    if (is_full()) {
      keep[0].keep_all();
      keep[1].keep_all();
    } else {
      decide(tile, keep);
    }
  }

  KJIT_DEVICE void first_softmax(Softmax &state, const Tile &tile, const Keep (&keep)[2]) {
    apply<true>(tile, keep);
    typename Softmax::Rows now, factors;
    state.template find_maximum<true>(s, now, p.scale, p.scale_log2);
    state.template set_max<true>(now, factors, p.scale_log2);
    state.template exponentiate<true>(s, p.scale_log2);
  }

  // A tile's first key block, when no product of the tile before it is left to overlap with.
  KJIT_DEVICE void first_block(const Tile &tile) {
    Keep keep[2];
    decide_first(tile, keep);
    wait_for_turn();
    issue_scores(queries.slot);
    pass_turn();
    wgmma_wait_group<0>();
    release_own_scores(queries.slot);
    first_softmax(softmax, tile, keep);
    round_scores();
  }

  // The steps between a tile's first scores and its last product with V.
  // @return 0 when O holds nothing yet, else 1: what the last product's `accumulate` has to be
  KJIT_DEVICE int inner_blocks(const Tile &tile, int buffer) {
    int accumulate = 0;
#pragma unroll 1
    while (!is_last()) {
      read_entry();
      if (is_full())
        step<false>(tile, buffer, accumulate);
      else
        step<true>(tile, buffer, accumulate);
      accumulate = 1;
    }
    return accumulate;
  }

  // One step: the scores of a block together with the product O += P V of the block before it.
  template <bool kPartial> KJIT_DEVICE void step(const Tile &tile, int buffer, int accumulate) {
    Keep keep[2];
    if constexpr (kPartial) decide(tile, keep);
    issue_both(buffer, accumulate);
    wait_for_scores();
    release_own_scores(buffer);
    if constexpr (kAppliedInFlight) apply<kPartial>(tile, keep);
    wgmma_wait_group<0>();
    release_values();
    if constexpr (!kAppliedInFlight) apply<kPartial>(tile, keep);
    next_softmax<kPartial>();
  }

  // The last product O += P V of `tile` together with the first scores of `next`.
  KJIT_DEVICE void switch_tile(const Tile &tile, const Tile &next, int buffer, int accumulate) {
    Keep keep[2];
    decide_first(next, keep);
    issue_both(queries.slot, accumulate);
    wait_for_scores();
    release_own_scores(queries.slot);
    Softmax following;
    if constexpr (kAppliedInFlight) first_softmax(following, next, keep);
    wgmma_wait_group<0>();
    release_values();
    finish_tile(tile, buffer);
    if constexpr (!kAppliedInFlight) first_softmax(following, next, keep);
    softmax = following;
    round_scores();
  }

  // The last product O += P V of a tile, when nothing of the next tile overlaps with it.
  KJIT_DEVICE void last_block(const Tile &tile, int buffer, int accumulate) {
    mbarrier_wait_parity(at.values_full(values.slot), values.parity);
    wait_for_turn();
    issue_output(accumulate);
    pass_turn();
    wgmma_wait_group<0>();
    release_values();
    finish_tile(tile, buffer);
  }

  // Store a tile. Its sinks are added once: of a tile that was split, by the first split.
  KJIT_DEVICE void finish_tile(const Tile &tile, int buffer) {
    if constexpr (variant::kSinks) {
      if (!cfg::kSplitKv || tile.split == 0)
        variant::add_sinks<true>(softmax, o, v, p.scale_log2, lane,
                                 [&](int, int r) { return output_row(p, tile, consumer, own_row(r)).head; });
    }
    store(tile, buffer);
  }
};
