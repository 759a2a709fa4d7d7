// The consumer of an attention variant, derived from the dense one: the steps and their products are the same.
//
// What differs:
//   blocks   which key block a step is for stands in the entry that the producer left with the K buffer
//   masks    a step's mask is decided into keep words before its products are issued, while this consumer waits for its
//            turn: judging keys one by one is a loop, which may not stand between a product's issue and its wait, and
//            behind the issue even straight code, for intervals of keys, adds to a step. Words that the block's list
//            has are read from shared memory, where the producer brought them
//   scores   a score function may branch or call, so scores go through it when no product is in flight (ptxas
//            serialises products across either). A folded one (variant::RowScore) costs a full block one FMA a score,
//            or one more where it has a term, because it is computed in the exponent
//   rows     what a tile's rows have in common for all keys, such as an interval's bounds and a slope, is computed once
//            a tile
//   terms    those that lie in a tensor come to shared memory where there is room for a step's: by TMA
//            (variant_term_ring.cuh), or copied by the consumer's own warps (variant_terms.cuh). Beyond 64 columns they
//            are added to S while O is in flight, so that the next block's come during the softmax
#pragma once
#include "attention_sm90/consumer.cuh"
#include "attention_sm90/judged_block.cuh"
#include "attention_sm90/variant_term_ring.cuh"
#include "attention_sm90/variant_tile.cuh"
#include "attention_variant/row_score.cuh"

struct VariantConsumer : Consumer {
  using Keep = variant::KeepWords<kColumns8>;
  static constexpr bool kAddsTerms = TermSource::kAddedInFlight;
  using Pairs = typename TermSource::template Terms<kColumns8>;
  // Beyond 64 columns the products take long enough for tanh's instructions, and the polynomial's only add to a step:
  // at 256 columns softcap lost 8 % by them, at 64 it gained 10.
  static constexpr bool kByPolynomial = variant::kNear && cfg::kHeadDim <= 64;
  // Masks alone are straight code, which may run while O is in flight.
  static constexpr bool kAppliedInFlight = !variant::kScored;

  const attention_variant_params &v;
  variant::RowScore scores_of[2]; // of the tile that the next scores belong to
  int low[2], high[2];            // bounds of that tile's rows, with kKeepsBounds
  BoundRing bounds;               // the slot of the next tile's, with kPlannedBounds
  bool is_near = true;            // no score of that tile was too far for RowScore::of<true>() yet; the same in a warp
  TermSource source;
  uint32_t entry = 0; // of the step's key block: 2 * (its entry in the walk) + (the tile's last)

  KJIT_DEVICE VariantConsumer(const attention_sm90_variant_params &params, Layout layout, int consumer, int thread)
      : Consumer(params.base, layout, consumer, thread), v(params.variant), source(v, layout, consumer, warp, lane) {}

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
    store_finished();
    if (thread == 0) cp_async_bulk_wait_group<0>(); // shared memory must live until TMA has read it
  }

private:
  KJIT_DEVICE variant::Row row(const Tile &tile, int r) const {
    return variant_row(v, p, tile, output_row(p, tile, consumer, own_row(r)));
  }

  // Read which block the next K is, once that is there. All threads: what comes next depends on it. Where each warp
  // arrives for itself, the lane that arrives is the one that reads.
  KJIT_DEVICE void wait_for_entry() {
    mbarrier_wait_parity(at.keys_full(keys.slot), keys.parity);
    uint32_t read = 0;
    if (kKeyReleases == 1 || lane == 0) read = ld_shared_4(at.entry(keys.slot));
    entry = broadcast_from_lane_0(read);
  }
  KJIT_DEVICE int first_key() const { return (int)(entry / (2 * kEntryStates)) * cfg::kKeyRows; }
  // The block's state for the rows of this consumer.
  KJIT_DEVICE int own_state() const {
    if constexpr (!kParted) return entry >> 1 & 1 ? VARIANT_FULL : VARIANT_PARTIAL;
    return entry >> (1 + 2 * consumer) & 3;
  }
  KJIT_DEVICE bool is_full() const { return own_state() == VARIANT_FULL; }
  KJIT_DEVICE bool is_last() const { return entry % 2; }

  // Judge a block key by key, before its products are issued.
  KJIT_DEVICE void judge(const Tile &tile, Keep (&keep)[2]) const {
    const Judged judged = judge_block(cvta_to_param(&p), tile.query_tile, tile.head, tile.batch, first_key());
    keep[0] = judged.keep[0];
    keep[1] = judged.keep[1];
  }

  // Read the keep words that came with K.
  KJIT_DEVICE void read_words(Keep (&keep)[2]) const {
    const uint32_t own = at.keep(keys.slot, consumer) + thread * 2 * Keep::kWords * SM90_WORD_BYTES;
    int words[2 * Keep::kWords];
#pragma unroll
    for (int i = 0; i < 2 * Keep::kWords; i += 2)
      ld_shared_8(own + i * SM90_WORD_BYTES, words[i], words[i + 1]);
#pragma unroll
    for (int i = 0; i < 2 * Keep::kWords; i++)
      keep[i / Keep::kWords].word[i % Keep::kWords] = words[i];
    if (kKeyReleases != 1) __syncwarp(); // lane 0's later arrival says that all lanes have read them
  }

  // Decide a block by intervals.
  KJIT_DEVICE void compare(const Tile &tile, Keep (&keep)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; r++)
      if constexpr (kKeepsBounds)
        keep[r].decide_between(low[r], high[r], first_key(), lane);
      else
        keep[r].decide(v, row(tile, r), first_key(), lane);
  }

  // Where the terms are read: in shared memory, or in registers, into which they are loaded here.
  template <bool kWhole> KJIT_DEVICE void load_terms(const Tile &tile, Pairs (&pairs)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; r++)
      source.template load<kWhole>(pairs[r], row(tile, r), first_key(), r);
  }

  template <bool kPartial> KJIT_DEVICE void apply(const Tile &tile, const Keep (&keep)[2], const Pairs (&pairs)[2]) {
#pragma unroll
    for (int r = 0; r < 2; r++)
      if constexpr (variant::kFolded)
        scores_of[r].template apply<kPartial>(s[0], r, v, row(tile, r), keep[r], pairs[r], first_key(), lane);
      else
        variant::apply<kPartial, true>(s[0], r, v, row(tile, r), keep[r], first_key(), lane);
  }

  // With kAddsTerms: add the terms to the scores, while O is in flight.
  KJIT_DEVICE void add_terms(const Pairs (&pairs)[2]) {
    if constexpr (kAddsTerms) {
      source.wait();
#pragma unroll
      for (int r = 0; r < 2; r++)
        scores_of[r].add_terms(s[0], r, pairs[r]);
        // Without this the compiler would leave the sums until O is there.
#pragma unroll
      for (int n = 0; n < kColumns8; n++)
        asm volatile("" : "+f"(s[0][n][0]), "+f"(s[0][n][1]), "+f"(s[0][n][2]), "+f"(s[0][n][3]));
      if constexpr (TermRing::kUsed) source.wait(); // has happened; ptxas moves nothing across its branch
    }
  }
  // What is left of apply() behind that.
  template <bool kPartial>
  KJIT_DEVICE void apply_rest(const Tile &tile, const Keep (&keep)[2], const Pairs (&pairs)[2]) {
    if constexpr (kAddsTerms) {
#pragma unroll
      for (int r = 0; r < 2; r++)
        scores_of[r].template scale_sums<kPartial>(s[0], r, keep[r]);
    } else {
      apply<kPartial>(tile, keep, pairs);
    }
  }

  KJIT_DEVICE void release_own_scores(int buffer) {
    if constexpr (kKeyReleases == 1)
      release(at.keys_empty(keys.slot));
    else
      mbarrier_arrive_if(at.keys_empty(keys.slot), lane == 0);
    keys.advance();
    if (cfg::kOutputBands > 0 && is_last()) release_query(buffer);
  }

  // Begin a tile: compute what its rows have in common, and decide its first step, in which every kind of block takes
  // the same code.
  KJIT_DEVICE void begin_tile(const Tile &tile, Keep (&keep)[2]) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      if constexpr (variant::kFolded) scores_of[r].template begin<kAddsTerms>(v, row(tile, r));
      if constexpr (kPlannedBounds)
        ld_shared_8(at.bounds(bounds.slot, consumer * cfg::kConsumerRows + own_row(r)), low[r], high[r]);
      else if constexpr (kKeepsBounds)
        variant::interval(v, row(tile, r), 0, low[r], high[r]);
    }
    if constexpr (kPlannedBounds) {
      __syncwarp(); // lane 0's later arrivals say that all lanes have read them
      bounds.advance();
    }
    is_near = true;
    wait_for_entry();
    source.begin(row(tile, 0), row(tile, 1), first_key());
    if (variant::kJudged && is_full()) {
      keep[0].keep_all();
      keep[1].keep_all();
    } else {
      decide(tile, keep);
    }
  }
  KJIT_DEVICE void decide(const Tile &tile, Keep (&keep)[2]) const {
    if constexpr (variant::kJudged) {
      const int state = own_state();
      if (kParted && state == VARIANT_EMPTY) {
#pragma unroll
        for (int w = 0; w < Keep::kWords; w++)
          keep[0].word[w] = keep[1].word[w] = 0;
      } else if (kHasKeep && state == VARIANT_WRITTEN) {
        read_words(keep);
      } else {
        judge(tile, keep);
      }
    } else {
      compare(tile, keep);
    }
  }

  KJIT_DEVICE void first_softmax(Softmax &state, const Tile &tile, const Keep (&keep)[2], const Pairs (&pairs)[2]) {
    apply<true>(tile, keep, pairs);
    typename Softmax::Rows now, factors;
    state.template find_maximum<true>(s, now, p.scale, p.scale_log2);
    state.template set_max<true>(now, factors, p.scale_log2);
    state.template exponentiate<true>(s, p.scale_log2);
  }

  // A tile's first key block, when no product of the tile before it is left to overlap with.
  KJIT_DEVICE void first_block(const Tile &tile) {
    Keep keep[2];
    Pairs terms[2];
    begin_tile(tile, keep);
    wait_for_turn();
    issue_scores(queries.slot);
    pass_turn();
    load_terms<false>(tile, terms);
    wgmma_wait_group<0>();
    release_own_scores(queries.slot);
    source.wait();
    first_softmax(softmax, tile, keep, terms);
    round_scores();
  }

  // The steps between a tile's first scores and its last product with V.
  // @return 0 when O holds nothing yet, else 1: what the last product's `accumulate` has to be
  KJIT_DEVICE int inner_blocks(const Tile &tile, int buffer) {
    int accumulate = 0;
    source.done(first_key(), is_last());
#pragma unroll 1
    while (!is_last()) {
      wait_for_entry();
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
    Pairs terms[2];
    source.require(first_key());
    if constexpr (kPartial) decide(tile, keep);
    issue_both(buffer, accumulate);
    load_terms<!kPartial>(tile, terms);
    wait_for_scores();
    release_own_scores(buffer);
    if constexpr (kAppliedInFlight) apply<kPartial>(tile, keep, terms);
    add_terms(terms);
    if constexpr (kAddsTerms) source.done(first_key(), is_last());
    wgmma_wait_group<0>();
    release_values();
    if constexpr (!kAddsTerms) source.wait();
    if constexpr (variant::kFolded && !kPartial) {
      folded_softmax(tile, terms);
    } else {
      if constexpr (!kAppliedInFlight) apply_rest<kPartial>(tile, keep, terms);
      next_softmax<kPartial>();
    }
    if constexpr (!kAddsTerms) source.done(first_key(), is_last());
  }

  // As next_softmax(), with the score function folded into the exponent. The scores stay as they are, unless the
  // maximum has to rise, which is rare: then they go through the function and are exponentiated again.
  KJIT_DEVICE void folded_softmax(const Tile &tile, const Pairs (&pairs)[2]) {
    typename Softmax::Rows added;
    if constexpr (variant::kFolded) {
      bool is_far = false;
      if (kByPolynomial && is_near) {
        is_far = exponentiate_near(tile, pairs, added);
        is_near = !is_far;
      } else {
        int unread = 0;
#pragma unroll
        for (int r = 0; r < 2; r++)
          exponentiate_folded<false>(tile, pairs[r], r, added[0][r], unread);
      }
      if (cfg::kRescaleThreshold == 0 || is_far || Softmax::exceeds_threshold(added)) {
        const Keep all[2] = {};
        apply_rest<false>(tile, all, pairs);
        softmax.raise_max(s, o, p.scale_log2);
        exponentiate_scores(added);
      }
    }
    softmax.add(added);
  }

  // @return whether a score of the warp was too far for RowScore::of<true>(), so that what was computed does not count
  KJIT_DEVICE bool exponentiate_near(const Tile &tile, const Pairs (&pairs)[2], typename Softmax::Rows &added) {
    bool is_far = false;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      int farthest = 0;
      exponentiate_folded<true>(tile, pairs[r], r, added[0][r], farthest);
#if KJIT_VARIANT_TANH
      is_far |= __int_as_float(farthest) > scores_of[r].near;
#endif
    }
    return __any_sync(0xffffffffu, is_far);
  }

  template <bool kNear>
  KJIT_DEVICE void exponentiate_folded(const Tile &tile, const Pairs &pairs, int r, float &added, int &farthest) {
    if constexpr (variant::kFolded) {
      const variant::Row own = row(tile, r);
      const variant::RowScore &score = scores_of[r];
      const variant::RowScore::Terms<Pairs> terms(score, v, own, pairs, first_key() + lane % 4 * 2, softmax.max[0][r]);
      const auto exponent = [&](float s, int column) {
        if constexpr (kAddsTerms) return fmaf(s, score.slope, -softmax.max[0][r]);
        return score.template of<kNear>(s, terms.at(column), farthest);
      };
      float even = 0.0f, odd = 0.0f;
#pragma unroll
      for (int n = 0; n < kColumns8; n++) {
        const float p0 = ex2_approx(exponent(s[0][n][2 * r], 8 * n));
        const float p1 = ex2_approx(exponent(s[0][n][2 * r + 1], 8 * n + 1));
        even += p0;
        odd += p1;
        probabilities[n / 2][n % 2 * 2 + r] = cvt_rn_x2(cfg::Element{}, p0, p1);
      }
      added = even + odd;
    }
  }

  // The last product O += P V of `tile` together with the first scores of `next`.
  KJIT_DEVICE void switch_tile(const Tile &tile, const Tile &next, int buffer, int accumulate) {
    Keep keep[2];
    Pairs terms[2];
    begin_tile(next, keep);
    issue_both(queries.slot, accumulate);
    claim_output();
    load_terms<false>(next, terms);
    wait_for_scores();
    release_own_scores(queries.slot);
    Softmax following;
    if constexpr (kAppliedInFlight) first_softmax(following, next, keep, terms);
    wgmma_wait_group<0>();
    release_values();
    finish_tile(tile, buffer);
    source.wait();
    if constexpr (!kAppliedInFlight) first_softmax(following, next, keep, terms);
    softmax = following;
    round_scores();
  }

  // The last product O += P V of a tile, when nothing of the next tile overlaps with it.
  KJIT_DEVICE void last_block(const Tile &tile, int buffer, int accumulate) {
    mbarrier_wait_parity(at.values_full(values.slot), values.parity);
    wait_for_turn();
    issue_output(accumulate);
    pass_turn();
    claim_output();
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
