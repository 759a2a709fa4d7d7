// The producer of ragged problems: one warp, of which all lanes find the next tile (order.cuh), and issue the loads.
//
// The order of the loads is that of attention_sm90's producer, which this one is derived from. K and V of a key block
// come in boxes of p.box_rows rows: one box, or with pages as many as the block has pages; lane i looks up the page of
// box i and issues its copies. A box of keys that the sequence does not have is asked for in a page that does not
// exist, so that TMA writes zeros and nothing is looked up. Of each key block K is loaded, then V of the block before
// it, so a page's number is kept from one to the other.
//
// With pages that boxes do not fit, the gatherers load K and V (gatherer.cuh), and the producer loads Q alone.
//
// What lies behind a sequence's last row of Q or last key are other sequences' rows, or slots that were never written.
// K's do no harm, because their scores are masked. Q's and V's are cleared (clipper.cuh), so Q, and a V that has such
// rows, land at mbarriers of the clipper's.
#pragma once
#include "attention_prefill_sm90/order.cuh"
#include "attention_prefill_sm90/tile.cuh"
#include "attention_sm90/producer.cuh"
#include <kjit/ptx/tma_hint.cuh>

struct RaggedProducer : Producer {
  const attention_prefill_params &ragged;
  const attention_serving_params &v;
  const RaggedLayout landing;
  const int lane;

  enum { kCounterOfMany, kCounterOfFew, kCounterOfFinished };
  bool is_second_list = false;

  // Where this lane's box of a key block lies: its row in the map, and the map's batch or page.
  struct Box {
    int row, outer;
  };

  // The key block whose V is still to be loaded.
  struct Pending {
    int key_head; // -1: there is none
    bool is_cut, streams;
    Box box;
  };
  Pending pending = {-1, false, false, {0, 0}};

  KJIT_DEVICE RaggedProducer(const attention_prefill_params &params, RaggedLayout layout, int lane)
      : Producer{params.base, layout}, ragged(params), v(params.serving), landing(layout), lane(lane) {}

  KJIT_DEVICE void run(const int *order, order::Lists lists) {
    order::Walk walk(ragged, order, lists, lane);
    RaggedTile tile = {};
    for (int number = walk.own_number(); find_tile(walk, number, tile);) {
      if constexpr (cfg::kGathers) {
        load_ragged_query(tile);
        int next = 0;
        if (lane == 0) next = ask(walk);
        number = broadcast_from_lane_0(next);
        continue;
      }
      // A page's number is asked for a key block ahead, and is there when the block's buffer is empty.
      Box ahead = box_of(tile, tile.blocks.end - 1);
      load_ragged_query(tile);
      const int key_head = tile.head / p.heads_per_kv;
      // As in attention_sm90: early enough to hide the atomic's latency, late enough that the block is nearly free.
      const int ask_at = tile.blocks.first + 1 < tile.blocks.end ? tile.blocks.first + 1 : tile.blocks.first;
      int following = 0;
      for (int block = tile.blocks.end - 1; block >= tile.blocks.first; block--) {
        if (block == ask_at && lane == 0) following = ask(walk);
        const Box box = ahead;
        if (block > tile.blocks.first) ahead = box_of(tile, block - 1);
        load_ragged_keys(key_head, box, tile.streams);
        if (pending.key_head >= 0) load_ragged_values();
        pending = {key_head, tile.is_cut(block), tile.streams, box};
      }
      if (cfg::kQueryBuffers == 1) {
        load_ragged_values();
        pending.key_head = -1;
      }
      number = broadcast_from_lane_0(following);
    }
    announce_ragged_end();
    if (pending.key_head >= 0) load_ragged_values();
    finish();
  }

private:
  // Ask for a number of the list that is walked along. One lane.
  KJIT_DEVICE int ask(const order::Walk &walk) const {
    return walk.number_of(atomicAdd(v.arrivals + (walk.list == order::kFew ? kCounterOfFew : kCounterOfMany), 1));
  }

  // The tile of a number or, when the list has no more, one of the other list, which the block has not begun with.
  KJIT_DEVICE bool find_tile(order::Walk &walk, int number, RaggedTile &tile) {
    while (!walk.find(number, tile)) {
      if (!cfg::kFew || is_second_list) return false;
      is_second_list = true;
      walk.begin_with(walk.list == order::kFew ? order::kMany : order::kFew);
      int first = 0;
      if (lane == 0) first = ask(walk);
      number = broadcast_from_lane_0(first);
    }
    return true;
  }

  // All lanes have passed before lane 0 announces a tile, because consumers give a tile without keys back at once: a
  // lane that still waited would then wait for a phase that is over.
  KJIT_DEVICE void wait_for_empty_query() const {
    mbarrier_wait_parity(at.query_empty(queries.slot), queries.parity ^ 1);
    __syncwarp();
  }

  KJIT_DEVICE void load_ragged_query(RaggedTile &tile) {
    if constexpr (cfg::kNarrow) tile.descales = descales_of(v, tile.sequence(), tile.query_head() / v.group);
    wait_for_empty_query();
    if (lane == 0) {
      const uint32_t landed = landing.query_landed(queries.slot);
      store_ragged_tile(landing.ragged_tile(queries.slot), tile); // ordered by the arrivals
      if constexpr (cfg::kGathers) mbarrier_arrive(landing.tile_known(queries.slot));
      const int queries = tile.s.rows - tile.query_tile * cfg::kTileQueries;
      const int tiles = (queries + cfg::kConsumerQueries - 1) / cfg::kConsumerQueries;
      const int used = cfg::kFew ? smaller(tiles, cfg::kConsumers) : cfg::kConsumers;
      mbarrier_arrive_expect_tx(landed, used * cfg::kConsumerRows * cfg::kRowBytes * cfg::bands(cfg::kHeadDim));
      for (int c = 0; c < used; c++)
        for (int i = 0; i < cfg::bands(cfg::kHeadDim); i++)
          load_band_of_query(tile, landed, c, i);
    }
    __syncwarp();
    queries.advance();
  }

  KJIT_DEVICE void load_band_of_query(const RaggedTile &tile, uint32_t landed, int consumer, int band) const {
    const uint32_t shared = at.query(queries.slot, consumer) + band * cfg::kConsumerRows * cfg::kRowBytes;
    const int row = tile.s.first_row + tile.first_query(consumer), batch = v.cu_q ? 0 : tile.batch;
    if constexpr (cfg::kPackGqa == 1) {
      tma_load(shared, map(p.q), landed, band * 64, row, tile.head, batch);
    } else {
      const GqaHead head = gqa_head(p, tile, 0);
      tma_load(shared, map(p.q), landed, band * 64, head.in_gqa_group, row, head.key_head, batch);
    }
  }

  KJIT_DEVICE void announce_ragged_end() {
    wait_for_empty_query();
    if (lane == 0) {
      store_end_of_tiles(landing.ragged_tile(queries.slot));
      if constexpr (cfg::kGathers) mbarrier_arrive(landing.tile_known(queries.slot));
      mbarrier_arrive(landing.query_landed(queries.slot));
    }
    __syncwarp();
  }

  // This lane's box of a key block; of lanes that have none any box.
  KJIT_DEVICE Box box_of(const RaggedTile &tile, int block) const {
    const int key = block * cfg::kKeyRows + lane * ragged.box_rows, position = tile.s.first_slot + key;
    if (!v.page_table) return {position, v.cu_k ? 0 : tile.s.cache_row};
    if (key >= tile.s.keys || !has_box()) return {0, v.cache_rows};
    const int index = v.page_shift >= 0 ? position >> v.page_shift : position / v.page_size;
    return {position - index * v.page_size, v.page_table[tile.s.cache_row * v.page_table_stride + index]};
  }

  // Is a box of a key block this lane's? A block has at most as many as a warp has lanes, as a box has 8 rows or more.
  KJIT_DEVICE bool has_box() const { return lane * ragged.box_rows < cfg::kKeyRows; }

  KJIT_DEVICE void load_ragged_keys(int key_head, Box box, bool streams) {
    const uint32_t full = cfg::kNarrow ? landing.keys_landed(keys.slot) : at.keys_full(keys.slot);
    load_boxes<cfg::kHeadDim>(p.k, at.keys(keys.slot), at.keys_empty(keys.slot), keys.parity ^ 1, full, box, key_head,
                              ragged.key_bands, streams);
    keys.advance();
  }

  // V of the pending key block.
  KJIT_DEVICE void load_ragged_values() {
    const bool lands = cfg::kNarrow || pending.is_cut;
    const uint32_t full = lands ? landing.values_landed(values.slot) : at.values_full(values.slot);
    load_boxes<cfg::kHeadDimV>(p.v, at.values(values.slot), at.values_empty(values.slot), values.parity ^ 1, full,
                               pending.box, pending.key_head, ragged.value_bands, pending.streams);
    values.advance();
  }

  // Load a key block of K or V, once its buffer is empty. All lanes.
  template <int kColumns>
  KJIT_DEVICE void load_boxes(const attention_tensor_map &m, uint32_t shared, uint32_t empty, int parity, uint32_t full,
                              Box box, int head, int head_bands, bool streams) const {
    constexpr int kBands = cfg::kNarrow ? cfg::Narrow<kColumns>::kBands : cfg::bands(kColumns);
    const uint32_t to = shared + (cfg::kNarrow ? cfg::Narrow<kColumns>::kAt : 0);
    mbarrier_wait_parity(empty, parity);
    if (lane == 0) mbarrier_arrive_expect_tx(full, kBands * cfg::kKeyRows * cfg::kRowBytes);
    __syncwarp(); // the bytes are expected before they come
    if (has_box()) {
      // Keys that many tiles read stay in L2 longer than those that one reads.
      load_box<kBands>(cfg::kFew && streams ? kEvictFirst : kEvictLast, m, to, full, box, head, head_bands);
    }
    __syncwarp();
  }

  // Load this lane's box.
  template <int kBands>
  KJIT_DEVICE void load_box(uint64_t policy, const attention_tensor_map &m, uint32_t shared, uint32_t full, Box box,
                            int head, int head_bands) const {
    if constexpr (cfg::kGrouped) {
      tma_load_with(policy, shared + lane * ragged.box_rows * kBands * cfg::kRowBytes, map(m), full, 0, 0,
                    head * head_bands, box.row / PREFILL_PATTERN_ROWS, box.outer);
    } else {
      constexpr int kBoxColumns = cfg::kNarrow ? cfg::kRowBytes : SM90_CHUNK_COLUMNS;
      for (int i = 0; i < kBands; i++)
        tma_load_with(policy, shared + (i * cfg::kKeyRows + lane * ragged.box_rows) * cfg::kRowBytes, map(m), full,
                      i * kBoxColumns, box.row, head, box.outer);
    }
  }

  // The last block of the grid to finish sets the scheduler's counters to zero for the next launch.
  KJIT_DEVICE void finish() const {
    if (lane != 0) return;
    __threadfence();
    if (atomicAdd(v.arrivals + kCounterOfFinished, 1) != (int)gridDim.x - 1) return;
    for (int i = 0; i < PREFILL_COUNTERS; i++)
      v.arrivals[i] = 0;
  }
};
