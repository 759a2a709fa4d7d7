// A consumer: one warpgroup that owns 64 query rows of every tile of its block.
//
// The stream of (tile, key block) pairs is one pipeline: S of the next block, also when it is the next tile's first, is
// multiplied together with O += P V of this one, and softmax runs under the products of the other consumers. With one Q
// buffer, through which O leaves too, a tile ends before the next one starts.
//
// A step after a tile's first seeks no maximum. Probabilities are taken relative to the reference that there is, the
// first step's maximum at first; only when a row's sum says that it was too low by far is a maximum found, O brought
// down to it, and the step's probabilities computed again from S, which is still there.
//
// Every product is waited for in the straight line of code that issues it: ptxas serialises what is in flight across a
// loop's end or a branch (warnings C7510 to C7519).
#pragma once
#include <kjit/ptx/barrier.cuh>
#include <kjit/ptx/cvt.cuh>
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/stmatrix.cuh>
#include <kjit/ptx/tma.cuh>
#include <kjit/ptx/wgmma.cuh>
#include <kjit/types.cuh>
#include <kjit/warp.cuh>

#include "attention_sm90/partials.cuh"

struct Consumer {
  static constexpr int kDepth = (cfg::kHeadDim + 15) / 16; // products of 16 for S
  static constexpr int kKeyTiles = cfg::kKeyRows / 16;     // products of 16 for O
  static constexpr int kColumns8 = cfg::kKeyRows / 8;
  static constexpr int kOutput8 = cfg::kHeadDimV / 8;
  static constexpr int kNone = -1;
  using Softmax = OnlineSoftmax<1, kColumns8, kOutput8, true, cfg::kRescaleSlack, cfg::kCausal>;

  const attention_sm90_params &p;
  const Layout at;
  const int consumer, thread, warp, lane;
  Ring<cfg::kQueryBuffers> queries;
  Ring<cfg::kStages> keys, values;
  float s[1][kColumns8][4];
  float o[1][kOutput8][4];
  uint32_t probabilities[kKeyTiles][4];
  Softmax softmax;
  int leaving = kNone; // the Q buffer that O leaves through, until its release

  KJIT_DEVICE Consumer(const attention_sm90_params &params, Layout layout, int consumer, int thread)
      : p(params), at(layout), consumer(consumer), thread(thread), warp(thread / kLanesPerWarp),
        lane(thread % kLanesPerWarp) {}

  KJIT_DEVICE void run() {
    wgmma_define_accumulators(o[0]); // a tile's first O = P V decides by `accumulate` whether it reads O
    if (cfg::kPingPong && consumer == cfg::kConsumers - 1) bar_arrive(turn_barrier(0), kTurnThreads);
    Tile tile;
    if (!next_tile(tile)) return;
    start(tile);
    while (true) {
      const int buffer = queries.slot;
      const int first_product = middle(tile, buffer);
      queries.advance();
      Tile next;
      if constexpr (cfg::kOverlapsTiles) {
        release_left(); // what follows may need it
        if (!next_tile(next)) {
          end(tile, buffer, first_product);
          break;
        }
        change(tile, next, buffer, first_product);
      } else {
        end(tile, buffer, first_product);
        release_left();
        if (!next_tile(next)) break;
        start(next);
      }
      tile = next;
    }
    if (thread == 0) cp_async_bulk_wait_group<0>(); // shared memory must live until the copy engine has read it
  }

private:
  static constexpr int kTurnThreads = 2 * cfg::kGroupThreads;

  // Named barriers: 1 … consumers for turns, then one each for a consumer's own threads.
  KJIT_DEVICE static int turn_barrier(int consumer) { return 1 + consumer; }
  KJIT_DEVICE int own_barrier() const { return 1 + cfg::kConsumers + consumer; }

  // Ping-pong: consumers take turns in issuing products, so that one's products run under another's softmax.
  KJIT_DEVICE void wait_for_turn() const {
    if constexpr (cfg::kPingPong) bar_sync(turn_barrier(consumer), kTurnThreads);
  }
  KJIT_DEVICE void pass_turn() const {
    if constexpr (cfg::kPingPong) bar_arrive(turn_barrier((consumer + 1) % cfg::kConsumers), kTurnThreads);
  }

  // Wait for the Q of the next tile; false when there is none.
  KJIT_DEVICE bool next_tile(Tile &tile) const {
    mbarrier_wait_parity(at.query_full(queries.slot), queries.parity);
    return load_tile(at.tile(queries.slot), lane, tile);
  }

  KJIT_DEVICE void release(uint32_t barrier) const {
    if (thread == 0) mbarrier_arrive(barrier); // one arrival a warpgroup: 128 are measurably slower
  }
  KJIT_DEVICE void release_query(int buffer) const {
    if (lane == 0) mbarrier_arrive(at.query_empty(buffer));
  }
  // The Q buffer that O was sent from, once it has been read. Put off until something else is to be waited for.
  KJIT_DEVICE void release_left() {
    if constexpr (cfg::kOutputChunks > 0) return;
    cp_async_bulk_wait_group_read<0>(); // the next Q may overwrite it
    if (leaving != kNone) release_query(leaving);
    leaving = kNone;
  }
  // Once S is there; with a tile's last S Q has done its work, if O does not leave through it.
  KJIT_DEVICE void release_scores(const Tile &tile, int block, int buffer) {
    release(at.keys_empty(keys.slot));
    keys.advance();
    if (cfg::kOutputChunks > 0 && block == own_key_blocks(p, tile).first) release_query(buffer);
  }
  KJIT_DEVICE void release_values() {
    release(at.values_empty(values.slot));
    values.advance();
  }

  // S = Q K^T, not waited for.
  KJIT_DEVICE void issue_scores(int buffer) {
    uint64_t q = wgmma_descriptor(at.query(buffer, consumer), 16);
    asm volatile("" : "+l"(q)); // or else all steps' are computed once, kept, and spilled
    const uint64_t k = wgmma_descriptor(at.keys(keys.slot), 16);
    wgmma_fence();
#pragma unroll
    for (int d = 0; d < kDepth; d++)
      Wgmma<cfg::Element, cfg::kKeyRows>::mma_async_ss(s[0], q + k_major_step(cfg::kGroupRows, d),
                                                       k + k_major_step(cfg::kKeyRows, d), d > 0);
    wgmma_commit_group();
  }

  // 16 columns further within a chunk are 32 bytes; the next chunk lies behind all rows of this one.
  KJIT_DEVICE static uint64_t k_major_step(int rows, int depth) {
    return wgmma_descriptor_step(depth / 4 * rows * cfg::kRowBytes + depth % 4 * 32);
  }

  // O (+)= P V, not waited for.
  KJIT_DEVICE void issue_output(int accumulate) {
    const uint64_t v = wgmma_descriptor(at.values(values.slot), cfg::kKeyRows * cfg::kRowBytes);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kKeyTiles; k++)
      Wgmma<cfg::Element, cfg::kHeadDimV>::mma_async_rs<true>(
          o[0], probabilities[k], v + wgmma_descriptor_step(k * 16 * cfg::kRowBytes), k > 0 ? 1 : accumulate);
    wgmma_commit_group();
  }

  // Scores of keys that a row does not see, or that do not exist, become -inf.
  KJIT_DEVICE void mask(const Tile &tile, int block) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int position = tile.first_position(consumer) + own_row(r) / cfg::kPacked;
      const int valid = keys_seen_by(p, position) - block * cfg::kKeyRows - lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kColumns8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++)
          if (n * 8 + i >= valid) s[0][n][2 * r + i] = masked_score();
    }
  }

  // Probabilities in S become the operand that weigh() would have made of them.
  KJIT_DEVICE void round_scores() {
#pragma unroll
    for (int k = 0; k < kKeyTiles; k++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const float(&pair)[4] = s[0][2 * k + i / 2];
        probabilities[k][i] = cvt_rn_x2(cfg::Element{}, pair[i % 2 * 2], pair[i % 2 * 2 + 1]);
      }
  }

  // First block of a tile that nothing overlaps with.
  KJIT_DEVICE void start(const Tile &tile) {
    mbarrier_wait_parity(at.keys_full(keys.slot), keys.parity);
    wait_for_turn();
    issue_scores(queries.slot);
    pass_turn();
    wgmma_wait_group<0>();
    release_scores(tile, own_key_blocks(p, tile).end - 1, queries.slot);
    first_softmax(softmax, tile);
    round_scores();
  }

  KJIT_DEVICE void first_softmax(Softmax &state, const Tile &tile) {
    const int block = own_key_blocks(p, tile).end - 1;
    if (cfg::kCausal || (block + 1) * cfg::kKeyRows > p.seq_kv) mask(tile, block);
    typename Softmax::Rows now, factors;
    state.template find_maximum<true>(s, now, p.scale, p.scale_log2);
    state.template move_reference<true>(now, factors, p.scale_log2);
    state.template exponentiate<true>(s, p.scale_log2);
  }

  // All blocks but the first one's scores and the last one's output. Masked blocks come first.
  // @return 0 when O holds nothing yet, else 1
  KJIT_DEVICE int middle(const Tile &tile, int buffer) {
    const int first = cfg::kSplit ? own_key_blocks(p, tile).first : 0;
    int block = own_key_blocks(p, tile).end - 2;
    int accumulate = 0;
    if constexpr (cfg::kCausal) {
      const int masked = first_masked_block(p, tile);
#pragma unroll 1
      for (; block >= first && block >= masked; block--) {
        step<true>(tile, buffer, block, accumulate);
        accumulate = 1;
      }
    }
#pragma unroll 1
    for (; block >= first; block--) {
      step<false>(tile, buffer, block, accumulate);
      accumulate = 1;
    }
    return accumulate;
  }

  // Scores of `block` together with the output of the block before.
  template <bool kMasked> KJIT_DEVICE void step(const Tile &tile, int buffer, int block, int accumulate) {
    issue_both(buffer, accumulate);
    wgmma_wait_group<1>();
    release_scores(tile, block, buffer);
    if constexpr (kMasked) mask(tile, block);
    wgmma_wait_group<0>();
    release_values();
    next_softmax<kMasked>();
  }

  // Probabilities of S, once no product is under way that uses those before it or O. A second try is a loop, for less
  // code, in masked steps, which are few, and where keys are shared out, which waits for memory; else it is out of the
  // way.
  template <bool kMasked> KJIT_DEVICE void next_softmax() {
    typename Softmax::Rows added;
#pragma unroll kMasked || cfg::kSplit ? 1 : 2
    for (int tries = 0; tries < 2; tries++) {
      if (tries > 0 || cfg::kRescaleSlack == 0) softmax.raise_reference(s, o, p.scale_log2);
      weigh(added);
      if (cfg::kRescaleSlack == 0 || !Softmax::is_outgrown(added)) break;
    }
    softmax.add(added);
  }

  // The accumulator layout of 16 columns of S is one A operand of the product with V.
  KJIT_DEVICE void weigh(typename Softmax::Rows &added) {
    softmax.weigh(s, added, p.scale_log2, [&](int, int n, int r, float p0, float p1) {
      probabilities[n / 2][n % 2 * 2 + r] = cvt_rn_x2(cfg::Element{}, p0, p1);
    });
  }

  KJIT_DEVICE void issue_both(int buffer, int accumulate) {
    mbarrier_wait_parity(at.keys_full(keys.slot), keys.parity);
    wait_for_turn();
    issue_scores(buffer);
    mbarrier_wait_parity(at.values_full(values.slot), values.parity);
    issue_output(accumulate);
    pass_turn();
    release_left();
  }

  // The last output of `tile` together with the first scores of `next`.
  KJIT_DEVICE void change(const Tile &tile, const Tile &next, int buffer, int accumulate) {
    issue_both(queries.slot, accumulate);
    wgmma_wait_group<1>();
    release_scores(next, own_key_blocks(p, next).end - 1, queries.slot);
    Softmax following;
    first_softmax(following, next);
    wgmma_wait_group<0>();
    release_values();
    store(tile, buffer);
    softmax = following;
    round_scores();
  }

  // The last output of a tile that nothing overlaps with.
  KJIT_DEVICE void end(const Tile &tile, int buffer, int accumulate) {
    mbarrier_wait_parity(at.values_full(values.slot), values.parity);
    wait_for_turn();
    issue_output(accumulate);
    pass_turn();
    wgmma_wait_group<0>();
    release_values();
    store(tile, buffer);
  }

  // A tile's result, or a part's; O leaves through this consumer's part of the Q buffer, which nobody reads any more.
  KJIT_DEVICE void store(const Tile &tile, int buffer) {
    if constexpr (cfg::kSplit) {
      if (tile.parts > 1) {
        store_part(tile, buffer);
        return;
      }
    }
    normalise(tile);
    if constexpr (cfg::kOutputChunks > 0) {
#pragma unroll
      for (int chunk = 0; chunk < cfg::chunks(cfg::kHeadDimV); chunk += cfg::kOutputChunks)
        send_chunks(tile, chunk);
    } else {
      const uint32_t out = at.query(buffer, consumer);
      output_to_shared(out, 0, cfg::chunks(cfg::kHeadDimV));
      send_output(tile, out, 0, cfg::chunks(cfg::kHeadDimV));
      leaving = buffer;
    }
  }

  // As many chunks as O's own memory holds, once those before them have left it.
  KJIT_DEVICE void send_chunks(const Tile &tile, int first) {
    constexpr int kAll = cfg::chunks(cfg::kHeadDimV);
    const int end = first + cfg::kOutputChunks < kAll ? first + cfg::kOutputChunks : kAll;
    if (thread == 0) cp_async_bulk_wait_group_read<0>();
    bar_sync(own_barrier(), cfg::kGroupThreads);
    output_to_shared(at.output(consumer), first, end);
    send_output(tile, at.output(consumer), first, end);
  }

  KJIT_DEVICE void normalise(const Tile &tile) {
    softmax.finish(o, p.scale, [&](int, int r, float log_sum_exp) {
      const OutputRow row = output_row(p, tile, consumer, own_row(r));
      if (p.lse != nullptr && lane % 4 == 0 && row.position < p.seq_q && row.in_group)
        p.lse[tile.batch * p.lse_batch_stride + row.head * p.lse_head_stride + row.position] = log_sum_exp;
    });
  }

  // The last part to arrive has the result of all.
  KJIT_DEVICE void store_part(const Tile &tile, int buffer) {
    Partials partials(p, tile, consumer, thread);
    float sums[2];
#pragma unroll
    for (int r = 0; r < 2; r++)
      sums[r] = quad_sum(softmax.sum[0][r]);
    partials.keep(o[0], softmax.max[0], sums);
    const uint32_t out = at.query(buffer, consumer);
    if (partials.arrive(own_barrier(), at.word(consumer), out)) {
      send_output(tile, out, 0, cfg::chunks(cfg::kHeadDimV));
      leaving = buffer;
    } else {
      release_query(buffer);
    }
  }

  // Chunks of O, once all of their 64 rows are in shared memory.
  KJIT_DEVICE void send_output(const Tile &tile, uint32_t out, int first, int end) {
    fence_async_proxy();
    bar_sync(own_barrier(), cfg::kGroupThreads);
    if (thread != 0) return;
    for (int i = first; i < end; i++)
      send_output_chunk(tile, out + (i - first) * cfg::kChunkBytes, i);
    cp_async_bulk_commit_group();
  }

  KJIT_DEVICE void send_output_chunk(const Tile &tile, uint32_t shared, int chunk) const {
    const TensorMap *map = (const TensorMap *)&p.o;
    if constexpr (cfg::kPacked == 1) {
      tma_store(map, shared, chunk * 64, tile.first_position(consumer), tile.head, tile.batch);
    } else {
      const PackedHead head = packed_head(p, tile, 0);
      tma_store(map, shared, chunk * 64, head.in_group, tile.first_position(consumer), head.key_head, tile.batch);
    }
  }

  // Of this thread's two rows, among the 64.
  KJIT_DEVICE int own_row(int r) const {
    return warp * 16 + lane / 4 + 8 * r;
  }

  // Chunks of O, 16 columns at a time, in the copy engine's swizzle: 16-byte chunk index XOR row % 8.
  KJIT_DEVICE void output_to_shared(uint32_t out, int first, int end) const {
    const int row = warp * 16 + lane % 16, half = lane / 16;
#pragma unroll
    for (int d = 0; d < (kOutput8 + 1) / 2; d++) {
      if (d / 4 < first || d / 4 >= end) continue;
      const uint32_t row_at = out + (d / 4 - first) * cfg::kChunkBytes + row * cfg::kRowBytes;
      const uint32_t address = row_at + (((d % 4 * 2 + half) ^ (row % 8)) << 4);
      const uint32_t r0 = pack(o[0][2 * d], 0), r1 = pack(o[0][2 * d], 2);
      if (2 * d + 1 < kOutput8)
        stmatrix_x4(address, r0, r1, pack(o[0][2 * d + 1], 0), pack(o[0][2 * d + 1], 2));
      else
        stmatrix_x2(address, r0, r1);
    }
  }
  KJIT_DEVICE static uint32_t pack(const float (&c)[4], int i) {
    return cvt_rn_x2(cfg::Element{}, c[i], c[i + 1]);
  }
};
