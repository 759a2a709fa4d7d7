// The steps of a block of threads with an attention variant: those that hold a pair of a query and a key which the mask
// lets meet.
//
// Which steps these are follows from the mask on the ranges of their queries and keys. The lanes of a warp judge 32
// steps at once and vote. A mask that reads tensors reads many elements for that, so the block's warps share the first
// kPlanned votes among themselves, before they take their roles, and leave them in shared memory, the plan. Beyond
// these each warp votes by itself, and finds the same steps as the others in the same order.
#pragma once
#include <kjit/ptx/memory.cuh>
#include <kjit/types.cuh>
#include <kjit/warp.cuh>

#include "attention_backward_sm90/pipeline.cuh"
#include "attention_backward_sm90/variant_params.h"
#include "flash_backward/variant_hooks.cuh"

// A step to be made.
struct VariantStep {
  int head;            // the query head that the mask and the score function get
  int step_head, tile; // head and tile of the step's rows
  bool is_full;        // every pair meets, and every row exists
};

// Of 32 steps, a bit each: those to be made, and of these those that need no mask.
struct VariantVote {
  uint32_t made, full;
};

struct VariantWork : Work {
  static constexpr bool kByWarp = true; // for_each_step() is called by all lanes of a warp
  static constexpr int kPlanned = 62;   // votes of the plan
  const attention_variant_params &v;
  uint32_t plan; // its shared::cta address

  KJIT_DEVICE VariantWork(const attention_backward_sm90_variant_params &p, bool last_first)
      : Work(p.base, last_first), v(p.variant) {}

  // Votes of each query head.
  KJIT_DEVICE int votes() const {
    return steps.first < steps.end ? ceil_div(steps.end - steps.first, kLanesPerWarp) : 0;
  }

  // Vote on 32 steps from `first` on. `index` is the query head's among those that share the key head. All lanes.
  KJIT_DEVICE VariantVote vote(int index, int first, int lane) const {
    const int step = first + lane;
    const int state = step < steps.end ? state_of(query_head(index), step) : VARIANT_EMPTY;
    return {__ballot_sync(0xffffffffu, state != VARIANT_EMPTY),
            __ballot_sync(0xffffffffu, state == VARIANT_FULL && !steps.is_masked(step))};
  }

  KJIT_DEVICE int query_head(int index) const { return cfg::kOwnsKeys ? first_step_head + index : head; }

  // Make the plan: all warps of the block, before a barrier of the block. `raw` is where the block's shared memory
  // begins, of which the layout takes shared::kBytes from the next multiple of BACKWARD_SM90_ALIGNMENT on: of the bytes
  // that this leaves before or behind, as many as the plan needs are together.
  KJIT_DEVICE void make_plan(uint32_t raw, uint32_t layout, int warp, int lane) {
    constexpr uint32_t kBytes = 8 * kPlanned, kEnd = ceil_div(shared::kBytes, 16) * 16;
    static_assert(2 * (kBytes + 16) <= BACKWARD_SM90_ALIGNMENT, "the plan fits on one of both sides");
    plan = layout - raw >= kBytes ? layout - kBytes : layout + kEnd;
    const int of_head = votes(), count = step_heads * of_head < kPlanned ? step_heads * of_head : kPlanned;
    for (int i = warp; i < count; i += cfg::kThreads / kLanesPerWarp) {
      const VariantVote found = vote(i / of_head, steps.first + i % of_head * kLanesPerWarp, lane);
      if (lane == 0) {
        st_shared_4(plan + 8 * i, found.made);
        st_shared_4(plan + 8 * i + 4, found.full);
      }
    }
  }

  // As Work has it, for the steps that are made. All lanes of a warp.
  template <typename Visit> KJIT_DEVICE void for_each_step(Visit visit) const;

private:
  // What a tile of the step's rows is to the own rows, by the mask on ranges.
  KJIT_DEVICE int state_of(int query_head, int step) const {
    const variant::Hooks hooks(v, batch);
    const int own_first = tile * cfg::kOwnRows, step_first = step * cfg::kStepRows;
    return cfg::kOwnsKeys ? hooks.state(query_head, step_first, cfg::kStepRows, own_first, cfg::kOwnRows)
                          : hooks.state(query_head, own_first, cfg::kOwnRows, step_first, cfg::kStepRows);
  }
};

// One warp's walk through the steps.
class VariantWalk {
  const VariantWork &work;
  const int lane;
  int index = 0, number = 0; // of the query head; of the next vote
  int first;                 // of the 32 steps of the last vote
  VariantVote left = {0, 0}; // of these, those that are still to be made

  KJIT_DEVICE VariantVote next_vote() {
    const int i = number++;
    if (i >= VariantWork::kPlanned) return work.vote(index, first, lane);
    return {(uint32_t)broadcast_from_lane_0(ld_shared_4(work.plan + 8 * i)),
            (uint32_t)broadcast_from_lane_0(ld_shared_4(work.plan + 8 * i + 4))};
  }

public:
  KJIT_DEVICE VariantWalk(const VariantWork &work, int lane)
      : work(work), lane(lane), first(work.steps.first - kLanesPerWarp) {}

  // Find the next step. All lanes of a warp. @return false when there is none
  KJIT_DEVICE bool next(VariantStep &step) {
    if (work.votes() == 0) return false;
    while (left.made == 0) {
      first += kLanesPerWarp;
      if (first >= work.steps.end) {
        if (++index >= work.step_heads) return false;
        first = work.steps.first;
      }
      left = next_vote();
    }
    const int at = __popc((left.made & (0u - left.made)) - 1);
    step = {work.query_head(index), work.first_step_head + index, first + at, (left.full >> at & 1) != 0};
    left.made &= left.made - 1;
    return true;
  }
};

template <typename Visit> KJIT_DEVICE void VariantWork::for_each_step(Visit visit) const {
  VariantWalk walk(*this, threadIdx.x % kLanesPerWarp);
  VariantStep step;
  while (walk.next(step))
    visit(step.step_head, step.tile);
}

using BlockWork = VariantWork;
