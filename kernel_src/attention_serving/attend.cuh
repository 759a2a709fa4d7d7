// The attend pass: a block of threads works on its run of the schedule, tile after tile, key block after key block.
//
// Warps: kRowWarps along the rows, 16 rows each, and kKeyWarps along the keys of a block, each with a softmax of its
// own; result.cuh joins them. Loads of kStages - 1 key blocks are under way while one is computed with.
#pragma once
#include <kjit/ptx/cp_async.cuh>
#include <kjit/ptx/cvt.cuh>
#include <kjit/ptx/griddepcontrol.cuh>
#include <kjit/ptx/ldmatrix.cuh>
#include <kjit/ptx/math.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/ptx/mma.cuh>
#include <kjit/shared_tile.cuh>
#include <kjit/types.cuh>

#include "attention_serving/config.cuh"
#include "attention_serving/lengths.cuh"
#include "attention_serving/params.h"
#include "attention_serving/result.cuh"
#include "attention_serving/tiles.cuh"
#include "attention_serving/walk.cuh"
#include "softmax/online_softmax.cuh"

// The products and the softmax of one warp.
struct Warp {
  using Softmax = OnlineSoftmax<1, cfg::kKeyTiles * 2, cfg::kOutputTiles8, true, 8, true>;
  using Scores = float[1][cfg::kKeyTiles * 2][4];

  const attention_serving_params &p;
  const int lane, key_offset; // the warp's first key in each block
  const LaneOffsets<cfg::QTile> q;
  const LaneOffsets<cfg::KTile> k; // of stage 0
  const LaneOffsets<cfg::VTile> v;
  const float scale_log2; // of what the softmax sees
  Seen seen[2];           // by the thread's two rows
  float o[1][cfg::kOutputTiles8][4];
  Softmax softmax;

  KJIT_DEVICE Warp(const attention_serving_params &params, uint32_t tiles, int warp, int lane)
      : p(params), lane(lane), key_offset(warp / cfg::kRowWarps * cfg::kWarpKeys),
        q(tiles, warp % cfg::kRowWarps * 16 + lane % 16, lane / 16),
        k(tiles + cfg::QTile::kBytes, key_offset + lane % 8 + lane / 16 * 8, lane / 8 % 2),
        v(tiles + cfg::QTile::kBytes + cfg::KTile::kBytes, key_offset + lane % 16, lane / 16),
        scale_log2(cfg::kSoftcap ? kLog2E : params.scale_log2) {}

  KJIT_DEVICE void start(const PackedRows &rows, int row_warp) {
#pragma unroll
    for (int r = 0; r < 2; r++)
      seen[r] = seen_by(p, rows.s, rows.query(row_warp * 16 + r * 8 + lane / 4));
#pragma unroll
    for (int n = 0; n < cfg::kOutputTiles8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        o[0][n][i] = 0.0f;
    softmax.start();
  }

  // One block of keys, whose first key is `key`. masked: some row may not see all of them.
  KJIT_DEVICE void step(uint32_t stage, int key, bool masked) {
    Scores s = {};
    multiply_keys(s, stage);
    if constexpr (cfg::kSoftcap) cap(s);
    if (masked) mask(s, key + key_offset);
    typename Softmax::Rows now, factors;
    if (softmax.template find_maximum<false>(s, now, p.scale, scale_log2)) {
      softmax.template set_max<false>(now, factors, scale_log2);
      softmax.rescale(o, factors);
    }
    softmax.template exponentiate<false>(s, scale_log2);
    multiply_values(s, stage);
  }

private:
  // S += Q K^T.
  KJIT_DEVICE void multiply_keys(Scores &s, uint32_t stage) const {
#pragma unroll
    for (int d = 0; d < cfg::kQueryKeySlices; d++) {
      uint32_t a[4];
      ldmatrix_x4(a, q.at(0, d));
#pragma unroll
      for (int n = 0; n < cfg::kKeyTiles; n++) {
        uint32_t b[4];
        ldmatrix_x4(b, stage + k.at(n, d));
        mma_m16n8k16(cfg::Element{}, s[0][2 * n], a, b[0], b[1]);
        mma_m16n8k16(cfg::Element{}, s[0][2 * n + 1], a, b[2], b[3]);
      }
    }
  }

  // O += P V, P being the scores' probabilities rounded to 16 bits: two neighbouring tiles of them are one A operand.
  KJIT_DEVICE void multiply_values(const Scores &s, uint32_t stage) {
#pragma unroll
    for (int t = 0; t < cfg::kKeyTiles; t++) {
      uint32_t a[4];
#pragma unroll
      for (int i = 0; i < 4; i++)
        a[i] = cvt_rn_x2(cfg::Element{}, s[0][2 * t + i / 2][i % 2 * 2], s[0][2 * t + i / 2][i % 2 * 2 + 1]);
#pragma unroll
      for (int n = 0; n < cfg::kValueSlices; n++) {
        uint32_t b[4];
        ldmatrix_x4_trans(b, stage + v.at(t, n));
        mma_m16n8k16(cfg::Element{}, o[0][2 * n], a, b[0], b[1]);
        if (2 * n + 1 < cfg::kOutputTiles8) mma_m16n8k16(cfg::Element{}, o[0][2 * n + 1], a, b[2], b[3]);
      }
    }
  }

  // s = cap * tanh(scale * s / cap), by tanh x = 1 - 2 / (exp(2 x) + 1), which is exact enough at both ends.
  KJIT_DEVICE void cap(Scores &s) const {
    const float inner = 2.0f * p.scale_log2 / p.softcap;
#pragma unroll
    for (int n = 0; n < cfg::kKeyTiles * 2; n++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        s[0][n][i] = p.softcap * (1.0f - 2.0f * rcp_approx(ex2_approx(s[0][n][i] * inner) + 1.0f));
  }

  // Scores of keys that a row does not see become -inf. `key` is the warp's first.
  KJIT_DEVICE void mask(Scores &s, int key) const {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const unsigned count = (unsigned)at_least_0(seen[r].high - seen[r].low);
      const int first = key + lane % 4 * 2 - seen[r].low;
#pragma unroll
      for (int n = 0; n < cfg::kKeyTiles * 2; n++)
#pragma unroll
        for (int i = 0; i < 2; i++)
          if ((unsigned)(first + n * 8 + i) >= count) s[0][n][2 * r + i] = masked_score();
    }
  }
};

struct Attend {
  const attention_serving_params &p;
  char *const shared;
  const uint32_t tiles;
  Walk walk;

  KJIT_DEVICE Attend(const attention_serving_params &params, char *shared, uint32_t address)
      : p(params), shared(shared), tiles(address), walk(params) {}

  KJIT_DEVICE void run() {
    bool found = walk.begin(*(plan::Chunk *)shared);
    griddepcontrol_wait(); // every thread, because the launch must not end before the append pass in front of it
    for (; found; found = walk.move())
      if (walk.has_share()) work(walk.tile, walk.share);
  }

private:
  // Compute this block's share of the tile.
  KJIT_DEVICE void work(const PlannedTile &tile, const Share &share) {
    const PackedRows rows(p, tile.s, tile.head, tile.index);
    const int thread = (int)threadIdx.x, index = thread / kLanesPerWarp;
    Warp warp(p, tiles, index, thread % kLanesPerWarp);
    warp.start(rows, index % cfg::kRowWarps);
    __syncthreads(); // everybody has finished with the shared memory of the tile before
    if (share.from < share.to) accumulate(warp, tile, rows, share);
    __syncthreads(); // everybody has finished with the tiles: O takes their place
    const Result result{{{p, rows, tile.sequence}, shared}};
    if (cfg::kKeyWarps == 1 && share.first == share.last) {
      result.finish_rows(warp.o, warp.softmax, warp.scale_log2);
      return;
    }
    result.keep(warp.o, warp.softmax, warp.scale_log2);
    __syncthreads();
    if (share.first == share.last) {
      result.finish();
      return;
    }
    result.write_partial(share.first);
    result.arrive(share.first, share.last);
  }

  KJIT_DEVICE void accumulate(Warp &warp, const PlannedTile &tile, const PackedRows &rows, const Share &share) {
    const KeyValueSource source(p, tile.s, tile.head, tile.start, tile.keys.high, tiles + cfg::QTile::kBytes,
                                tiles + cfg::kRowTableAt);
    load_query(p, rows, tile.sequence, tiles);
    if (p.cos) {
      cp_async_wait_group<0>();
      __syncthreads(); // Q is visible to all
      rotate_query(p, rows, tile.sequence, tiles);
    }
    for (int j = share.from; j < share.from + cfg::kStages - 1; j++)
      begin_block(source, j, share.to);
    if constexpr (cfg::kPaged)
      source.enter(share.from + cfg::kStages - 1, source.look_up(share.from + cfg::kStages - 1));
#pragma unroll 1
    for (int j = share.from; j < share.to; j++) {
      cp_async_wait_group<cfg::kStages - 2>();
      __syncthreads(); // block j is visible to all; everybody has finished with block j - 1, and entered rows
      const int ahead = j + cfg::kStages - 1;
      if (ahead < share.to) source.load(ahead);
      cp_async_commit_group();
      KeyValueSource::Slot next;
      if constexpr (cfg::kPaged) next = source.look_up(ahead + 1);
      const int key = tile.start + j * cfg::kKeys;
      warp.step(j % cfg::kStages * cfg::kStageBytes, key,
                key < tile.all_see.low || key + cfg::kKeys > tile.all_see.high);
      if constexpr (cfg::kPaged) source.enter(ahead + 1, next);
    }
    cp_async_wait_group<0>();
  }

  // Look up the rows of one of the first blocks, and start loading it.
  KJIT_DEVICE void begin_block(const KeyValueSource &source, int j, int end) const {
    if constexpr (cfg::kPaged) {
      source.enter(j, source.look_up(j));
      __syncthreads(); // the rows are known to all
    }
    if (j < end) source.load(j);
    cp_async_commit_group();
  }
};
