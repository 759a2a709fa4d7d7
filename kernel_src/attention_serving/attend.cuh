// The attend pass: a block of threads works on its run of the schedule, tile after tile, key block after key block.
//
// Warps: kRowWarps along the rows, 16 rows each, and kKeyWarps along the keys of a block, each with a softmax of its
// own; result.cuh joins them. Loads of kStages - 1 key blocks are under way while one is computed with.
#pragma once
#include <kjit/ptx/cp_async.cuh>
#include <kjit/ptx/griddepcontrol.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/types.cuh>

#include "attention_serving/config.cuh"
#include "attention_serving/lengths.cuh"
#include "attention_serving/params.h"
#include "attention_serving/products_of_config.cuh"
#include "attention_serving/result.cuh"
#include "attention_serving/tiles.cuh"
#include "attention_serving/walk.cuh"
#include "attention_serving/warp.cuh"

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
    Warp warp(p, tiles + cfg::kQueryBytes, tiles + cfg::kQueryBytes + cfg::KTile::kBytes, index,
              thread % kLanesPerWarp);
    warp.start(rows, tile.sequence, tile.head, index % cfg::kRowWarps);
    __syncthreads(); // everybody has finished with the shared memory of the tile before
    if (share.from < share.to) accumulate(warp, tile, rows, share);
    warp.end();
    __syncthreads(); // everybody has finished with the tiles: O takes their place
    const Result result{{{p, rows, tile.sequence}, shared}};
    if (cfg::kKeyWarps == 1 && share.first == share.last) {
      result.finish_rows(warp.o, warp.softmax, warp.scale_log2());
      return;
    }
    result.keep(warp.o, warp.softmax, warp.scale_log2());
    __syncthreads();
    if (share.first == share.last) {
      result.finish();
      return;
    }
    result.write_partial(share.first);
    result.arrive(share.first, share.last);
  }

  KJIT_DEVICE void accumulate(Warp &warp, const PlannedTile &tile, const PackedRows &rows, const Share &share) {
    const KeyValueSource source(p, tile.s, tile.head, tile.start, tile.keys.high, tiles + cfg::kQueryBytes,
                                tiles + cfg::kRowTableAt);
    load_query(p, rows, tile.sequence, tiles);
    if (p.cos) {
      cp_async_wait_group<0>();
      __syncthreads(); // Q is visible to all
      rotate_query(p, rows, tile.sequence, tiles);
    }
    if constexpr (cfg::kNarrow) take_query(warp);
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
      const uint32_t stage = j % cfg::kStages * cfg::kStageBytes;
      warp.step(stage, stage, key, key < tile.all_see.low || key + cfg::kKeys > tile.all_see.high, [] {});
      if constexpr (cfg::kPaged) source.enter(ahead + 1, next);
    }
    cp_async_wait_group<0>();
  }

  // From shared memory to registers, and with kQueryShared back as A operands, in the same place; the first block's
  // barrier makes them visible to all. A template, since not all products can share Q.
  template <typename AnyWarp> KJIT_DEVICE void take_query(AnyWarp &warp) const {
    const int index = (int)threadIdx.x / kLanesPerWarp, row_warp = index % cfg::kRowWarps, first = row_warp * 16;
    cp_async_wait_group<0>();
    __syncthreads(); // Q is visible to all, and rotated
    warp.products.take_query(warp.lane, [&](int row, int chunk) {
      if (chunk * kChunkElements >= cfg::kHeadDim) return Chunk{};
      return ld_shared_16(tiles + chunk_offset<cfg::QTile>(first + row, chunk));
    });
    if constexpr (cfg::kQueryShared) {
      __syncthreads(); // everybody has taken its rows
      warp.products.query = tiles + row_warp * warp.products.kQueryBytes + warp.lane * kChunkBytes;
      if (index < cfg::kRowWarps) warp.products.share_query(); // warps along the keys have the same rows
    }
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
