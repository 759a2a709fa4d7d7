// The consumer of an attention variant, derived from the dense one: the products, and how gradients are stored, are the
// same.
//
// What differs:
//   steps    those that the mask leaves (variant_work.cuh)
//   masks    a step whose ranges do not decide has one bit for each of a thread's scores. Where a query sees intervals
//            of keys, straight code makes the bits while the products are in flight. Other masks are judged pair by
//            pair before the products are issued, because their code is a loop and may branch, across either of which
//            ptxas serialises products in flight
//   scores   a score function may branch too, so P and dS are computed together when all products have ended: P from
//            the changed score, dS = P * (dP - delta) * the function's derivative
#pragma once
#include "attention_backward_sm90/consumer.cuh"

struct VariantConsumer : Consumer {
  // One bit for each score of a thread: bit 4 * (n % 8) + i of word n / 8 is s[n][i].
  struct Seen {
    static constexpr int kPerWord = 8, kWords = (kStep8 + kPerWord - 1) / kPerWord;
    uint32_t word[kWords];

    KJIT_DEVICE bool holds(int n, int i) const { return word[n / kPerWord] >> (4 * (n % kPerWord) + i) & 1; }
  };

  static constexpr int kIntervals = variant::kMasked ? KJIT_VARIANT_INTERVALS : 1;
  static constexpr bool kJudged = kIntervals == 0;

  const VariantWork &visited;
  const variant::Hooks hooks;

  KJIT_DEVICE VariantConsumer(const attention_backward_sm90_variant_params &params, Layout layout,
                              const VariantWork &work, int consumer, int thread)
      : Consumer(params.base, layout, work, consumer, thread), visited(work), hooks(params.variant, work.batch) {}

  KJIT_DEVICE void run() {
    if constexpr (cfg::kComputesDq)
      own = own_statistics<cfg::Element, cfg::kHeadDimV>(p.rest, work.batch, work.head, {own_row(0), own_row(1)}, lane);
    if constexpr (cfg::kNeedsDs) clear(dx);
    if constexpr (cfg::kComputesDv) clear(dv);
    mbarrier_wait_parity(at.own_full(), 0);
    VariantWalk walk(visited, lane);
    if constexpr (cfg::kPipelined)
      pipelined_steps(walk);
    else
      plain_steps(walk);
    store_gradients();
  }

private:
  // Query and key of the score s[n][i].
  KJIT_DEVICE void pair_of(int n, int i, int tile, int &query, int &key) const {
    const int column = tile * cfg::kStepRows + n * 8 + lane % 4 * 2 + i % 2;
    query = cfg::kOwnsKeys ? column : own_row(i / 2);
    key = cfg::kOwnsKeys ? own_row(i / 2) : column;
  }

  // Which of a thread's pairs count. A loop that is not unrolled, because the mask's code then stands in the kernel a
  // few times and not once for each score.
  KJIT_DEVICE void judge(Seen &seen, const VariantStep &step) const {
#pragma unroll
    for (int w = 0; w < Seen::kWords; w++) {
      constexpr int kPerWord = Seen::kPerWord;
      uint32_t bits = 0;
#pragma unroll 1
      for (int n = 0; n < kPerWord && w * kPerWord + n < kStep8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
          int query, key;
          pair_of(w * kPerWord + n, i, step.tile, query, key);
          const bool meet = key < keys_seen(p.rest, query) && hooks.sees(step.head, query, key);
          bits |= (uint32_t)meet << (4 * n + i);
        }
      seen.word[w] = bits;
    }
  }

  // The same by the intervals of keys that a query sees; without a mask these are all keys that there are for it.
  KJIT_DEVICE void compare(Seen &seen, const VariantStep &step) const {
#pragma unroll
    for (int w = 0; w < Seen::kWords; w++)
      seen.word[w] = 0;
    if constexpr (cfg::kOwnsKeys) {
#pragma unroll
      for (int n = 0; n < kStep8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++)
          add_query(seen, step.head, step.tile * cfg::kStepRows + n * 8 + lane % 4 * 2 + i, n, n + 1, i);
    } else {
#pragma unroll
      for (int r = 0; r < 2; r++)
        add_query(seen, step.head, own_row(r), 0, kStep8, 2 * r, step.tile * cfg::kStepRows + lane % 4 * 2);
    }
  }

  // The pairs of one query: those of scores s[n][i] and s[n][i + 2] with keys as own rows, of s[n][i] and s[n][i + 1]
  // for all n with the keys from `first_key` on as the step.
  KJIT_DEVICE void add_query(Seen &seen, int head, int query, int n_first, int n_end, int i,
                             [[maybe_unused]] int first_key = 0) const {
    const int limit = keys_seen(p.rest, query);
#pragma unroll
    for (int which = 0; which < kIntervals; which++) {
      int low = 0, high = limit;
#if KJIT_VARIANT_MASK && KJIT_VARIANT_INTERVALS > 0
      kjit_variant_interval(hooks.v.arguments, which, hooks.batch, head, hooks.query_of(query), low, high);
      high = high < limit ? high : limit;
#endif
#pragma unroll
      for (int n = n_first; n < n_end; n++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
          const int key = cfg::kOwnsKeys ? own_row(j) : first_key + 8 * n + j, at = cfg::kOwnsKeys ? i + 2 * j : i + j;
          if (key >= low && key < high) seen.word[n / Seen::kPerWord] |= 1u << (4 * (n % Seen::kPerWord) + at);
        }
    }
  }

  // Decide for a step before its products are issued, and while they are in flight.
  template <bool kPartial> KJIT_DEVICE void decide_before([[maybe_unused]] Seen &seen, const VariantStep &step) const {
    if constexpr (kPartial && kJudged) judge(seen, step);
  }
  template <bool kPartial>
  KJIT_DEVICE void decide_in_flight([[maybe_unused]] Seen &seen, const VariantStep &step) const {
    if constexpr (kPartial && !kJudged) compare(seen, step);
  }

  // LSE, or delta, of the query of s[n][i], of which `pair` is query_pair() where queries are the step.
  KJIT_DEVICE float lse_of(const Chunk &pair, int i) const {
    return cfg::kOwnsKeys ? __uint_as_float(pair.word[i % 2]) : own.lse[i / 2];
  }
  KJIT_DEVICE float delta_of(const Chunk &pair, int i) const {
    return cfg::kOwnsKeys ? __uint_as_float(pair.word[2 + i % 2]) : own.delta[i / 2];
  }

  // S becomes P where the score function is the identity.
  template <bool kPartial> KJIT_DEVICE void exponentiate_seen(const Seen &seen, int slot) {
    const float scale = p.rest.scale_log2;
#pragma unroll
    for (int n = 0; n < kStep8; n++) {
      Chunk pair = {};
      if constexpr (cfg::kOwnsKeys) pair = query_pair(slot, n);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        s[n][i] = ex2_approx(s[n][i] * scale - lse_of(pair, i));
        if (kPartial && !seen.holds(n, i)) s[n][i] = 0.0f;
      }
    }
  }

  // S and dP become P and dS of the changed scores. dS is 0 where P is, because the derivative may be infinite there;
  // P is where the LSE is +inf, as behind the last query, because a changed score may be infinite too.
  template <bool kPartial> KJIT_DEVICE void transform(const Seen &seen, const VariantStep &step, int slot) {
#pragma unroll
    for (int n = 0; n < kStep8; n++) {
      Chunk pair = {};
      if constexpr (cfg::kOwnsKeys) pair = query_pair(slot, n);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        int query, key;
        pair_of(n, i, step.tile, query, key);
        const float score = s[n][i], lse = lse_of(pair, i);
        const float power = ex2_approx(hooks.score_log2(score, p.rest.scale_log2, step.head, query, key) - lse);
        const bool counts = lse < infinity() && (!kPartial || seen.holds(n, i));
        s[n][i] = counts ? power : 0.0f;
        if constexpr (cfg::kNeedsDs) {
          const float slope = hooks.slope(score, step.head, query, key);
          dp[n][i] = s[n][i] != 0.0f ? s[n][i] * (dp[n][i] - delta_of(pair, i)) * slope : 0.0f;
        }
      }
    }
  }

  // P and dS of the step whose products were issued, besides `behind` groups that were issued after them. With a score
  // function every product has ended behind this.
  template <bool kPartial, int kBehind>
  KJIT_DEVICE void compute_seen(const Seen &seen, const VariantStep &step, int slot) {
    constexpr bool kWaitsForAll = variant::kScored || !kWgmmaPartialWaits;
    if constexpr (variant::kScored) {
      wgmma_wait_group<0>();
      transform<kPartial>(seen, step, slot);
    } else {
      wgmma_wait_group<kWaitsForAll ? 0 : kBehind + (cfg::kNeedsDs ? 1 : 0)>(); // S
      exponentiate_seen<kPartial>(seen, slot);
      if constexpr (cfg::kNeedsDs) {
        wgmma_wait_group<kWaitsForAll ? 0 : kBehind>(); // dP
        differentiate(slot);
      }
    }
  }

  KJIT_DEVICE void plain_steps(VariantWalk &walk) {
    VariantStep step;
#pragma unroll 1
    while (walk.next(step)) {
      if (step.is_full)
        plain_step<false>(step);
      else
        plain_step<true>(step);
    }
  }

  template <bool kPartial> KJIT_DEVICE void plain_step(const VariantStep &step) {
    Seen seen;
    decide_before<kPartial>(seen, step);
    issue_both_scores();
    decide_in_flight<kPartial>(seen, step);
    compute_seen<kPartial, 0>(seen, step, ring.slot);
    if constexpr (cfg::kComputesDv) round(rounded_p, s);
    if constexpr (cfg::kNeedsDs) round(rounded_ds, dp);
    wgmma_fence();
    issue_dv(values.slot);
    issue_dx(ring.slot);
    wgmma_commit_group();
    wgmma_wait_group<0>();
    release_step(ring.slot);
    release(at.value_empty(values.slot));
    ring.advance();
    values.advance();
  }

  // The first step of all has no sums before it, so it stands apart; it is taken as a partial one.
  KJIT_DEVICE void pipelined_steps(VariantWalk &walk) {
    VariantStep step;
    if (!walk.next(step)) return;
    int slot = ring.slot, value_slot = values.slot;
    first_step(step);
#pragma unroll 1
    while (walk.next(step)) {
      if (step.is_full)
        pipelined_step<false>(step, slot, value_slot);
      else
        pipelined_step<true>(step, slot, value_slot);
    }
    wgmma_fence();
    issue_dv(value_slot);
    issue_dx(slot);
    wgmma_commit_group();
    wgmma_wait_group<0>();
  }

  KJIT_DEVICE void first_step(const VariantStep &step) {
    Seen seen;
    decide_before<true>(seen, step);
    issue_both_scores();
    decide_in_flight<true>(seen, step);
    compute_seen<true, 0>(seen, step, ring.slot);
    finish_compute();
  }

  // slot, value_slot: the tiles of the step before, whose sums are still to be issued.
  template <bool kPartial> KJIT_DEVICE void pipelined_step(const VariantStep &step, int &slot, int &value_slot) {
    Seen seen;
    decide_before<kPartial>(seen, step);
    issue_both_scores();
    wgmma_fence();
    issue_dv(value_slot);
    issue_dx(slot);
    wgmma_commit_group();
    decide_in_flight<kPartial>(seen, step);
    compute_seen<kPartial, 1>(seen, step, ring.slot);
    wgmma_wait_group<0>();
    release_step(slot);
    if constexpr (cfg::kComputesDv) release(at.value_empty(value_slot));
    slot = ring.slot;
    value_slot = values.slot;
    finish_compute();
  }
};
