// How the keys and values of a run (one_part_runs.cuh) are loaded: block after block, across the ends of parts too, as
// far ahead of what multiplies them as there are stages. `Loads` says what the loads are: boxes of TMA by one warp
// (one_part_boxes.cuh), or rows by all warps of a warpgroup (one_part_rows.cuh).
#pragma once
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ring.cuh>

#include "attention_serving_sm90/one_part_runs.cuh"
#include "attention_serving_sm90/shared.cuh"

template <class Loads> struct RunLoads : Loads {
  using Loads::at;

  const Runs &runs;
  int behind;   // where the part behind this one begins, on the line
  RunPart part; // that the next block is of; its `parts` is 0 behind the last
  int block;
  int loaded; // blocks of the run
  Ring<cfg::kStages> ring;

  KJIT_DEVICE RunLoads(const attention_serving_one_part_params &params, Layout layout, int warp, int lane,
                       const Runs &of_block)
      : Loads(params, layout, warp, lane), runs(of_block), behind(of_block.begin()), loaded(0) {
    begin_part();
  }

  // Load the run's next block as soon as its stage has been multiplied with P. @return false when there is none. All
  // lanes of the warp.
  KJIT_DEVICE bool load_next() {
    if (part.parts == 0) return false;
    mbarrier_wait_parity(at.values_empty(ring.slot), ring.parity ^ 1); // then K has been multiplied, too
    this->fill(part, this->slot() == ring.slot);
    go_on();
    return true;
  }

  // Load all blocks of the run, K as soon as its stage has been multiplied with Q, and V with P. All lanes of all warps
  // that load.
  KJIT_DEVICE void run() {
#pragma unroll 1
    while (part.parts > 0) {
      mbarrier_wait_parity(at.keys_empty(ring.slot), ring.parity ^ 1);
      __syncwarp();
      fill_keys();
      mbarrier_wait_parity(at.values_empty(ring.slot), ring.parity ^ 1);
      __syncwarp();
      fill_values();
      go_on();
    }
  }

private:
  KJIT_DEVICE void fill_keys() {
    if constexpr (Loads::kAllWarps)
      this->gather_keys(part, ring.slot);
    else
      Loads::fill_keys(part, this->slot() == ring.slot);
  }
  KJIT_DEVICE void fill_values() {
    if constexpr (Loads::kAllWarps)
      this->gather_values(part, ring.slot);
    else
      Loads::fill_values(part, this->slot() == ring.slot);
  }

  KJIT_DEVICE void go_on() {
    ring.advance();
    loaded++;
    if (++block == part.to)
      begin_part();
    else
      choose_lines();
  }

  // parts::policy_of() decides by the number of blocks of a part, and with runs the number of blocks of the run has to
  // decide: `from`, which nothing else reads by now, is set for that. Behind the first blocks of a long run it is as if
  // the run were short.
  KJIT_DEVICE void choose_lines() {
    part.from = part.to - (loaded < parts::kReplacingBlocks ? runs.length : 0);
  }

  // Go on to the next part with a block of keys. Its first pages are looked up before they are needed.
  KJIT_DEVICE void begin_part() {
    do
      part = runs.next(behind);
    while (part.parts > 0 && part.from == part.to);
    if (part.parts == 0) return;
    block = part.from;
    this->begin(part, ring.slot);
    choose_lines();
  }
};
