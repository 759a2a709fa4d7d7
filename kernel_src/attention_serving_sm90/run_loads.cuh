// How one warp loads the keys and values of a run (one_part_runs.cuh): block after block, across the ends of parts too,
// as far ahead of what multiplies them as there are stages. The boxes of a block are those of one_part_boxes.cuh.
#pragma once
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ring.cuh>

#include "attention_serving_sm90/one_part_boxes.cuh"
#include "attention_serving_sm90/one_part_runs.cuh"
#include "attention_serving_sm90/shared.cuh"

struct RunLoads : OnePartBoxes {
  const Runs &runs;
  int behind;   // where the part behind this one begins, on the line
  RunPart part; // that the next block is of; its `parts` is 0 behind the last
  int block;
  Ring<cfg::kStages> ring;

  KJIT_DEVICE RunLoads(const attention_serving_one_part_params &params, Layout layout, int warp, int lane,
                       const Runs &of_block)
      : OnePartBoxes(params, layout, warp, lane), runs(of_block), behind(of_block.begin()) {
    begin_part();
  }

  // Load the run's next block as soon as its stage has been multiplied with P. @return false when there is none. All
  // lanes of the warp.
  KJIT_DEVICE bool load_next() {
    if (part.parts == 0) return false;
    mbarrier_wait_parity(at.values_empty(ring.slot), ring.parity ^ 1); // then K has been multiplied, too
    fill(part, slot() == ring.slot);
    ring.advance();
    if (++block == part.to) begin_part();
    return true;
  }

  // Load all blocks of the run, K as soon as its stage has been multiplied with Q, and V with P. All lanes of the warp.
  KJIT_DEVICE void run() {
#pragma unroll 1
    while (part.parts > 0) {
      mbarrier_wait_parity(at.keys_empty(ring.slot), ring.parity ^ 1);
      __syncwarp();
      fill_keys(part, slot() == ring.slot);
      mbarrier_wait_parity(at.values_empty(ring.slot), ring.parity ^ 1);
      __syncwarp();
      fill_values(part, slot() == ring.slot);
      ring.advance();
      if (++block == part.to) begin_part();
    }
  }

private:
  // Go on to the next part with a block of keys. Its first pages are looked up before they are needed.
  KJIT_DEVICE void begin_part() {
    do
      part = runs.next(behind);
    while (part.parts > 0 && part.from == part.to);
    if (part.parts == 0) return;
    block = part.from;
    begin(part, ring.slot);
    // Whether lines of L2 are to be replaced first, fill() tells from the blocks of a part: here from those of a run.
    part.from = part.to - runs.length;
  }
};
