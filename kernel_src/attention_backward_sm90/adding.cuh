// Adding dQ to its sums in global memory (pass 7, unless `direct`): for each consumer one thread of the producer, which
// waits for the consumer's part of a step, has the bulk copy engine add it, and tells the consumer when it has been
// read.
//
// Where tiles of keys take turns the thread waits for its tile's turn and passes it on. With `stores` the first part of
// each tile of sums is stored in place of added: with turns the first one is known, otherwise it is found by a state in
// global memory.
#pragma once
#include <kjit/ptx/bulk_reduce.cuh>
#include <kjit/ptx/griddepcontrol.cuh>
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/tma.cuh>

#include "attention_backward_sm90/pipeline.cuh"
#include "attention_backward_sm90/schedule.cuh"
#include "attention_backward_sm90/sums.cuh"

// Adds one consumer's halves to the sums. One thread of the producer.
struct Adder {
  const attention_backward_sm90_params &p;
  const Layout at;
  const Work &work;
  const int consumer;
  int parity = 0;

  KJIT_DEVICE void run() {
    if constexpr (cfg::kStores) griddepcontrol_wait(); // until pass 8 has set the states to 0
    work.for_each_step([&](int head, int step) {
      const Sums sums(p, work.batch, head);
      int *const turn = p.turns ? sums.turn(step, consumer) : nullptr;
      int *const state = cfg::kStores && !turn ? sums.state(step, consumer) : nullptr;
      const bool there = state && ld_acquire(state) == kThere;
      bool first = false;
      if (turn) first = wait_for_turn(p, work, turn, step); // while the consumer works on the step
      if (turn) fence_async_proxy_global();
      mbarrier_wait_parity(at.dq_full(consumer), parity);
      parity ^= 1;
      if (state && !there) first = claim(state);
      if (state) fence_async_proxy_global();
      if (cfg::kStores && first)
        bulk_store(part_of(sums, step, consumer), at.dq(consumer), cfg::kDqBytes);
      else
        bulk_reduce_add_f32(part_of(sums, step, consumer), at.dq(consumer), cfg::kDqBytes);
      cp_async_bulk_commit_group();
      cp_async_bulk_wait_group_read<0>();
      mbarrier_arrive(at.dq_empty(consumer));
      if (turn || (state && first)) pass_on(turn ? turn : state);
    });
    pass_on(Sums::done(p, work.batch, work.head, Extent(p).heads));
  }

private:
  static constexpr int kThere = 2;

  // Is this block the first one to add to a tile of sums? The others wait here until the first one's part is stored.
  KJIT_DEVICE static bool claim(int *state) {
    if (atomicCAS(state, 0, 1) == 0) return true;
    while (ld_acquire(state) != kThere)
      __nanosleep(20);
    return false;
  }

  // The release covers what the bulk copies wrote, because their completion is followed by an implicit fence between
  // the proxies (PTX ISA, "Async proxy").
  KJIT_DEVICE static void pass_on(int *turn) {
    cp_async_bulk_wait_group<0>();
    red_release_add(turn, 1);
  }
};
