// The producer: one thread that keeps the copy engine busy.
#pragma once
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/tma.cuh>
#include <kjit/types.cuh>

#include "attention_sm90/pipeline.cuh"
#include "attention_sm90/schedule.cuh"

// Loads, in the order in which the consumers need them: for each tile Q and its last key block, then K of every block
// and V of the block before it. With two Q buffers the next tile's first K comes ahead of this tile's last V, because
// the consumers multiply them so.
struct Producer {
  const attention_sm90_params &p;
  const Layout at;
  Ring<cfg::kQueryBuffers> queries;
  Ring<cfg::kStages> keys, values;

  KJIT_DEVICE void run() {
    TileQueue queue{p};
    int owed = -1; // block of V not loaded yet, of `owed_tile`
    Tile owed_tile = {};
    for (int number = queue.next(); number != kNoTile;) {
      const Tile tile = tile_by_number(p, number);
      load_query(tile);
      const KeyBlocks blocks = own_key_blocks(p, tile);
      // When the next ticket is taken: early enough to hide how long that takes, late enough that it is the next of a
      // block that is nearly free. Taken a tile ahead, tickets are as uneven as dealing out.
      const int ask_at = blocks.first + 1 < blocks.end ? blocks.first + 1 : blocks.first;
      int following = kNoTile;
      for (int block = blocks.end - 1; block >= blocks.first; block--) {
        if (block == ask_at) following = queue.next();
        load_keys(tile, block);
        if (owed >= 0) load_values(owed_tile, owed);
        owed = block;
        owed_tile = tile;
      }
      if (cfg::kQueryBuffers == 1) {
        load_values(owed_tile, owed);
        owed = -1;
      }
      number = following;
    }
    announce_end();
    if (owed >= 0) load_values(owed_tile, owed);
    queue.finish();
  }

private:
  KJIT_DEVICE static const TensorMap *map(const attention_tensor_map &m) { return (const TensorMap *)&m; }

  KJIT_DEVICE void load_query(const Tile &tile) {
    mbarrier_wait_parity(at.query_empty(queries.slot), queries.parity ^ 1);
    store_tile(at.tile(queries.slot), tile); // ordered by the arrival
    mbarrier_arrive_expect_tx(at.query_full(queries.slot),
                              cfg::kConsumers * cfg::kGroupRows * cfg::kRowBytes * cfg::chunks(cfg::kHeadDim));
    for (int c = 0; c < cfg::kConsumers; c++)
      for (int i = 0; i < cfg::chunks(cfg::kHeadDim); i++)
        load_query_chunk(tile, c, i);
    queries.advance();
  }

  KJIT_DEVICE void load_query_chunk(const Tile &tile, int consumer, int chunk) {
    const uint32_t shared = at.query(queries.slot, consumer) + chunk * cfg::kGroupRows * cfg::kRowBytes;
    if constexpr (cfg::kPacked == 1) {
      tma_load(shared, map(p.q), at.query_full(queries.slot), chunk * 64, tile.first_position(consumer), tile.head,
               tile.batch);
    } else {
      const PackedHead head = packed_head(p, tile, 0);
      tma_load(shared, map(p.q), at.query_full(queries.slot), chunk * 64, head.in_group, tile.first_position(consumer),
               head.key_head, tile.batch);
    }
  }

  KJIT_DEVICE void announce_end() {
    mbarrier_wait_parity(at.query_empty(queries.slot), queries.parity ^ 1);
    store_no_tile(at.tile(queries.slot));
    mbarrier_arrive(at.query_full(queries.slot));
  }

  KJIT_DEVICE void load_keys(const Tile &tile, int block) {
    mbarrier_wait_parity(at.keys_empty(keys.slot), keys.parity ^ 1);
    load_rows<cfg::chunks(cfg::kHeadDim)>(p.k, at.keys(keys.slot), at.keys_full(keys.slot), tile, block);
    keys.advance();
  }

  KJIT_DEVICE void load_values(const Tile &tile, int block) {
    mbarrier_wait_parity(at.values_empty(values.slot), values.parity ^ 1);
    load_rows<cfg::chunks(cfg::kHeadDimV)>(p.v, at.values(values.slot), at.values_full(values.slot), tile, block);
    values.advance();
  }

  template <int kChunks>
  KJIT_DEVICE void load_rows(const attention_tensor_map &m, uint32_t shared, uint32_t full, const Tile &tile,
                             int block) {
    mbarrier_arrive_expect_tx(full, kChunks * cfg::kKeyRows * cfg::kRowBytes);
    for (int i = 0; i < kChunks; i++)
      load_chunk(m, shared + i * cfg::kKeyRows * cfg::kRowBytes, full, i * 64, block * cfg::kKeyRows,
                 tile.head / p.heads_per_kv, tile.batch);
  }

  // Causal tiles that share keys differ in length and so read them at different times.
  KJIT_DEVICE static void load_chunk(const attention_tensor_map &m, uint32_t shared, uint32_t full, int column, int row,
                                     int head, int batch) {
    if constexpr (cfg::kCausal)
      tma_load_hint<kEvictLast>(shared, map(m), full, column, row, head, batch);
    else
      tma_load(shared, map(m), full, column, row, head, batch);
  }
};
