// The producer: one thread that loads the K and V blocks of its block of threads by TMA, in the order of the schedule,
// as far ahead as there are stages.
#pragma once
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/tma.cuh>

#include "attention_decode_sm90/schedule.cuh"
#include "attention_decode_sm90/shared.cuh"

struct Producer {
  const attention_decode_sm90_params &p;
  const Layout at;

  KJIT_DEVICE void run() {
    prefetch_tensormap(map(p.k));
    prefetch_tensormap(map(p.v));
    Schedule schedule(p);
    Segment segment;
    int number = 0;
    while (schedule.next(segment)) {
      for (int i = 0; i < segment.count; i++, number++) {
        const int slot = slot_of(number), empty = parity_of(number) ^ 1;
        const int row = (segment.first + i) * cfg::kKeyRows;
        mbarrier_wait_parity(at.keys_empty(slot), empty);
        load<cfg::bands(cfg::kHeadDim)>(p.k, at.keys(slot), at.keys_full(slot), row, segment);
        mbarrier_wait_parity(at.values_empty(slot), empty);
        load<cfg::bands(cfg::kHeadDimV)>(p.v, at.values(slot), at.values_full(slot), row, segment);
      }
    }
  }

private:
  KJIT_DEVICE static const TensorMap *map(const decode_tensor_map &m) { return (const TensorMap *)&m; }

  template <int kBands>
  KJIT_DEVICE void load(const decode_tensor_map &m, uint32_t shared, uint32_t full, int row, const Segment &segment) {
    mbarrier_arrive_expect_tx(full, kBands * cfg::kKeyRows * cfg::kRowBytes);
    for (int i = 0; i < kBands; i++)
      tma_load(shared + i * cfg::kKeyRows * cfg::kRowBytes, map(m), full, i * DECODE_BAND_COLUMNS, row, segment.head,
               segment.batch);
  }
};
