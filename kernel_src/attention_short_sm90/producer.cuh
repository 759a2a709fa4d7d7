// The producer: one thread that issues every TMA load of its block of threads. It walks over the run's key heads, and
// loads each one's K and V, then Q of every tile into the ring of the consumer whose turn it is.
#pragma once
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/tma.cuh>
#include <kjit/types.cuh>

#include "attention_short_sm90/schedule.cuh"
#include "attention_short_sm90/shared.cuh"

struct Producer {
  const attention_short_sm90_params &p;
  const Layout at;
  Ring<cfg::kStages> heads;
  Ring<cfg::kQueryBuffers> queries; // the same for all consumers, because they take tiles in turn
  int consumer = 0;                 // whose turn it is

  KJIT_DEVICE void run() {
    int number = 0;
    for (Walk walk(p); !walk.is_done(); walk.advance()) {
      load_head(walk);
      for (const int end = walk.end(); number < end; number++)
        load_query(walk.tile(number));
    }
  }

private:
  KJIT_DEVICE static const TensorMap *map(const attention_tensor_map &m) { return (const TensorMap *)&m; }

  KJIT_DEVICE void load_head(const Walk &walk) {
    mbarrier_wait_parity(at.head_empty(heads.slot), heads.parity ^ 1);
    load_rows<cfg::bands(cfg::kHeadDim)>(p.k, at.keys(heads.slot), at.keys_full(heads.slot), walk);
    load_rows<cfg::bands(cfg::kHeadDimV)>(p.v, at.values(heads.slot), at.values_full(heads.slot), walk);
    heads.advance();
  }

  template <int kBands>
  KJIT_DEVICE void load_rows(const attention_tensor_map &m, uint32_t shared, uint32_t full, const Walk &walk) {
    mbarrier_arrive_expect_tx(full, kBands * cfg::kKeyRows * cfg::kRowBytes);
    for (int i = 0; i < kBands; i++)
      tma_load(shared + i * cfg::kKeyRows * cfg::kRowBytes, map(m), full, i * SHORT_BAND_COLUMNS, 0, walk.key_head,
               walk.batch);
  }

  KJIT_DEVICE void load_query(const Tile &tile) {
    mbarrier_wait_parity(at.query_empty(consumer, queries.slot), queries.parity ^ 1);
    const uint32_t full = at.query_full(consumer, queries.slot), shared = at.query(consumer, queries.slot);
    mbarrier_arrive_expect_tx(full, cfg::kQueryLoadBytes);
    for (int i = 0; i < cfg::bands(cfg::kHeadDim); i++)
      tma_load(shared + i * cfg::kBandBytes, map(p.q), full, i * SHORT_BAND_COLUMNS, tile.query, tile.head, tile.batch);
    if (++consumer < cfg::kConsumers) return;
    consumer = 0;
    queries.advance();
  }
};
