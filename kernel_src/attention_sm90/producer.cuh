// The producer: one thread that issues every TMA load of its block of threads.
//
// For each tile that the scheduler hands out (schedule.cuh) the producer waits until a buffer is empty, writes the
// tile's coordinates beside the Q buffer, and loads, in the order in which the consumers need them: Q, K of the last
// key block, then K of every further block and V of the block before it. With two Q buffers the next tile's first K
// comes ahead of this tile's last V, because the consumers multiply them in that order. When there are no more tiles,
// it tells the consumers so. The other 127 threads of the producer's warpgroup have nothing to do.
#pragma once
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/tma.cuh>
#include <kjit/types.cuh>

#include "attention_sm90/pipeline.cuh"
#include "attention_sm90/schedule.cuh"

struct Producer {
  const attention_sm90_params &p;
  const Layout at;
  Ring<cfg::kQueryBuffers> queries;
  Ring<cfg::kStages> keys, values;

  KJIT_DEVICE void run() {
    TileScheduler queue{p};
    int pending = -1; // the key block of `pending_tile` whose V is still to be loaded; -1: none
    Tile pending_tile = {};
    for (int number = queue.next(); number != kNoTile;) {
      const Tile tile = tile_by_number(p, number);
      load_query(tile);
      const KeyBlocks blocks = key_blocks_of(p, tile);
      // The next tile's number is taken one key block before the last: early enough to hide the latency of the atomic,
      // late enough that a block takes it when it is nearly free. Taken a whole tile ahead, the numbers would balance
      // the load no better than dealing them out beforehand.
      const int ask_at = blocks.first + 1 < blocks.end ? blocks.first + 1 : blocks.first;
      int following = kNoTile;
      for (int block = blocks.end - 1; block >= blocks.first; block--) {
        if (block == ask_at) following = queue.next();
        load_keys(tile, block);
        if (pending >= 0) load_values(pending_tile, pending);
        pending = block;
        pending_tile = tile;
      }
      if (cfg::kQueryBuffers == 1) {
        load_values(pending_tile, pending);
        pending = -1;
      }
      number = following;
    }
    announce_end();
    if (pending >= 0) load_values(pending_tile, pending);
    queue.finish();
  }

protected:
  KJIT_DEVICE static const TensorMap *map(const attention_tensor_map &m) { return (const TensorMap *)&m; }

  KJIT_DEVICE void load_query(const Tile &tile) {
    mbarrier_wait_parity(at.query_empty(queries.slot), queries.parity ^ 1);
    store_tile(at.tile(queries.slot), tile); // ordered by the arrival
    mbarrier_arrive_expect_tx(at.query_full(queries.slot),
                              cfg::kConsumers * cfg::kConsumerRows * cfg::kRowBytes * cfg::bands(cfg::kHeadDim));
    for (int c = 0; c < cfg::kConsumers; c++)
      for (int i = 0; i < cfg::bands(cfg::kHeadDim); i++)
        load_query_band(tile, c, i);
    queries.advance();
  }

  KJIT_DEVICE void load_query_band(const Tile &tile, int consumer, int band) {
    const uint32_t shared = at.query(queries.slot, consumer) + band * cfg::kConsumerRows * cfg::kRowBytes;
    if constexpr (cfg::kPackGqa == 1) {
      tma_load(shared, map(p.q), at.query_full(queries.slot), band * 64, tile.first_query(consumer), tile.head,
               tile.batch);
    } else {
      const GqaHead head = gqa_head(p, tile, 0);
      tma_load(shared, map(p.q), at.query_full(queries.slot), band * 64, head.in_gqa_group, tile.first_query(consumer),
               head.key_head, tile.batch);
    }
  }

  KJIT_DEVICE void announce_end() {
    mbarrier_wait_parity(at.query_empty(queries.slot), queries.parity ^ 1);
    store_end_of_tiles(at.tile(queries.slot));
    mbarrier_arrive(at.query_full(queries.slot));
  }

  KJIT_DEVICE void load_keys(const Tile &tile, int block) {
    mbarrier_wait_parity(at.keys_empty(keys.slot), keys.parity ^ 1);
    load_rows<cfg::bands(cfg::kHeadDim)>(p.k, at.keys(keys.slot), at.keys_full(keys.slot), tile, block);
    keys.advance();
  }

  KJIT_DEVICE void load_values(const Tile &tile, int block) {
    mbarrier_wait_parity(at.values_empty(values.slot), values.parity ^ 1);
    load_rows<cfg::bands(cfg::kHeadDimV)>(p.v, at.values(values.slot), at.values_full(values.slot), tile, block);
    values.advance();
  }

  template <int kBands>
  KJIT_DEVICE void load_rows(const attention_tensor_map &m, uint32_t shared, uint32_t full, const Tile &tile,
                             int block) {
    mbarrier_arrive_expect_tx(full, kBands * cfg::kKeyRows * cfg::kRowBytes);
    for (int i = 0; i < kBands; i++)
      load_band(m, shared + i * cfg::kKeyRows * cfg::kRowBytes, full, i * 64, block * cfg::kKeyRows,
                tile.head / p.heads_per_kv, tile.batch);
  }

  // Load one band. Causal tiles that share keys differ in length and so read them at different times; evict_last keeps
  // these keys in L2 longer.
  KJIT_DEVICE static void load_band(const attention_tensor_map &m, uint32_t shared, uint32_t full, int column, int row,
                                    int head, int batch) {
    if constexpr (cfg::kCausal || cfg::kVariant)
      tma_load_hint<kEvictLast>(shared, map(m), full, column, row, head, batch);
    else
      tma_load(shared, map(m), full, column, row, head, batch);
  }
};
