// The producer: the warpgroup that fills shared memory. One thread of its first warp issues every TMA load. With
// queries as the step its second warp reads LSE and delta of each step's queries, as consumers want them. The other
// warps have nothing to do. Of an attention variant the first warp as a whole finds the steps, and one lane loads.
#pragma once
#include <kjit/ptx/griddepcontrol.cuh>
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/ptx/tma.cuh>
#include <kjit/types.cuh>

#include "attention_backward_sm90/pipeline.cuh"
#include "attention_backward_sm90/schedule.cuh"
#include "flash_backward/row_delta.cuh"

struct Producer {
  const attention_backward_sm90_params &p;
  const Layout at;
  const BlockWork &work;
  Ring<cfg::kStages> ring;
  Ring<cfg::kValueStages> values;
  Ring<2> tiles;             // of the places that the producer gives to the others
  Ring<cfg::kOwnStages> own; // of a persistent block's next tile
  int own_value_parity = 1;  // of its next wait for the own value tile to be empty

  // One thread; of a variant one warp.
  KJIT_DEVICE void load_tiles() {
    const bool loads = !BlockWork::kByWarp || threadIdx.x % kLanesPerWarp == 0;
    if (loads) {
      prefetch_maps();
      load_own();
      wait_for_statistics();
    }
    work.for_each_step([&](int head, int step) {
      if (!loads) return;
      load_step(head, step);
    });
  }

  // The same for a persistent block, whose first tile this is or not. What there is room for first comes first. A tile
  // without steps needs nothing.
  KJIT_DEVICE void load_next_tiles() {
    bool has_own = false;
    work.for_each_step([&](int head, int step) {
      if (cfg::kCarries && !has_own) load_next_own();
      load_step(head, step);
      if (cfg::kCarries && !has_own) load_next_own_value();
      if (!cfg::kCarries && !has_own) load_next_own();
      has_own = true;
    });
  }

  // Take the next tile and tell the other roles where it lies. One thread. Without turns each block's first tile has
  // been taken.
  KJIT_DEVICE Chunk take_tile() {
    griddepcontrol_wait(); // the kernel before has set the counter to 0
    const unsigned number = (p.turns ? 0 : gridDim.x) + (unsigned)atomicAdd(p.next_tile, 1);
    const Extent all(p);
    const bool exists = number < all.count();
    const Work::Place place = Work::place_of(all, exists ? number : 0, p.section, cfg::kCausal && p.turns);
    const Chunk chunk = {{(unsigned)place.tile, (unsigned)place.head, (unsigned)place.batch, exists}};
    mbarrier_wait_parity(at.tile_empty(tiles.slot), tiles.parity ^ 1);
    st_shared_16(at.tile_place(tiles.slot), chunk);
    mbarrier_arrive(at.tile_full(tiles.slot));
    tiles.advance();
    return chunk;
  }

  KJIT_DEVICE void prefetch_maps() const {
    prefetch_tensormap(map(p.own));
    prefetch_tensormap(map(p.own_value));
    prefetch_tensormap(map(p.step));
    prefetch_tensormap(map(p.step_value));
  }

  // One warp. A lane takes every 32nd pair of queries.
  KJIT_DEVICE void load_statistics(int lane) {
    const flash_backward_params &r = p.rest;
    wait_for_statistics();
    if constexpr (cfg::kSumsDq) griddepcontrol_launch_dependents(); // pass 16 finds the counters that pass 8 sets to 0
    work.for_each_step([&](int head, int step) {
      const float *lse = r.lse + work.batch * r.lse_stride.batch + head * r.lse_stride.head;
      const float *delta = r.delta + work.batch * r.delta_stride.batch + head * r.delta_stride.head;
      mbarrier_wait_parity(at.step_empty(ring.slot), ring.parity ^ 1);
#pragma unroll
      for (int pair = lane; pair < cfg::kStepRows / 2; pair += kLanesPerWarp) {
        Chunk chunk;
#pragma unroll
        for (int i = 0; i < 2; i++) {
          const int query = step * cfg::kStepRows + 2 * pair + i;
          const bool exists = query < r.seq_q;
          chunk.word[i] = __float_as_uint(exists ? lse_log2(lse[query]) : infinity());
          chunk.word[2 + i] = cfg::kNeedsDs && exists ? __float_as_uint(delta[query]) : 0;
        }
        st_shared_16(at.statistics(ring.slot) + pair * 16, chunk);
      }
      mbarrier_arrive(at.step_full(ring.slot));
      ring.advance();
    });
  }

private:
  // The tiles of a step, when there is room for them.
  KJIT_DEVICE void load_step(int head, int step) {
    const int row = step * cfg::kStepRows;
    mbarrier_wait_parity(at.step_empty(ring.slot), ring.parity ^ 1);
    load_rows<cfg::kHeadDim>(p.step, at.step(ring.slot), at.step_full(ring.slot), row, head);
    ring.advance();
    mbarrier_wait_parity(at.value_empty(values.slot), values.parity ^ 1);
    load_rows<cfg::kHeadDimV>(p.step_value, at.step_value(values.slot), at.value_full(values.slot), row, head);
    values.advance();
  }

  // The next own tile, where there are two, or both own tiles.
  KJIT_DEVICE void load_next_own() {
    mbarrier_wait_parity(at.own_empty(own.slot), own.parity ^ 1);
    if constexpr (cfg::kCarries) {
      mbarrier_arrive_expect_tx(at.own_full(own.slot), shared::kOwnBytes);
      load_own_rows<cfg::kHeadDim>(p.own, at.own(0, own.slot), at.own_full(own.slot));
    } else {
      load_own();
    }
    own.advance();
  }

  KJIT_DEVICE void load_next_own_value() {
    mbarrier_wait_parity(at.own_value_empty(), own_value_parity);
    own_value_parity ^= 1;
    mbarrier_arrive_expect_tx(at.own_value_full(), cfg::kOwnGroups * cfg::kGroupValueBytes);
    load_own_rows<cfg::kHeadDimV>(p.own_value, at.own_value(0), at.own_value_full());
  }

  KJIT_DEVICE static const TensorMap *map(const attention_backward_map &m) {
    return (const TensorMap *)&m;
  }

  // The kernel before this one on the stream writes delta. This one may have begun meanwhile.
  KJIT_DEVICE static void wait_for_statistics() {
    if constexpr (cfg::kOwnsKeys) griddepcontrol_wait();
  }

  KJIT_DEVICE void load_own() const {
    constexpr bool kValue = cfg::kNeedsDs; // dv alone reads no own value
    mbarrier_arrive_expect_tx(at.own_full(),
                              cfg::kOwnGroups * (cfg::kGroupBytes + (kValue ? cfg::kGroupValueBytes : 0)));
    load_own_rows<cfg::kHeadDim>(p.own, at.own(0), at.own_full());
    if constexpr (kValue) load_own_rows<cfg::kHeadDimV>(p.own_value, at.own_value(0), at.own_full());
  }

  // The rows of all consumers, one box for each of them and band.
  template <int kColumns>
  KJIT_DEVICE void load_own_rows(const attention_backward_map &m, uint32_t shared, uint32_t full) const {
    for (int c = 0; c < cfg::kOwnGroups; c++) {
      const int row = work.tile * cfg::kOwnRows + c * cfg::kGroupRows;
      for (int i = 0; i < cfg::bands(kColumns); i++)
        tma_load(shared + (c * cfg::bands(kColumns) + i) * cfg::kGroupBandBytes, map(m), full, i * 64, row, work.head,
                 work.batch);
    }
  }

  template <int kColumns>
  KJIT_DEVICE void load_rows(const attention_backward_map &m, uint32_t shared, uint32_t full, int row, int head) const {
    mbarrier_arrive_expect_tx(full, cfg::bands(kColumns) * cfg::kStepBandBytes);
    for (int i = 0; i < cfg::bands(kColumns); i++)
      tma_load(shared + i * cfg::kStepBandBytes, map(m), full, i * 64, row, head, work.batch);
  }
};
