// The steps of a block of threads with an attention variant: those that hold a pair of a query and a key which the mask
// lets meet.
//
// Which steps these are follows from the mask on the ranges of their queries and keys. The lanes of a warp judge 32
// steps at once and vote, so each warp finds the same steps in the same order by itself: the producer's as well as the
// consumers', without a list in memory and without waiting for each other.
#pragma once
#include <kjit/types.cuh>

#include "attention_backward_sm90/variant_params.h"
#include "flash_backward/variant_hooks.cuh"

// A step to be made.
struct VariantStep {
  int head;            // the query head that the mask and the score function get
  int step_head, tile; // head and tile of the step's rows
  bool is_full;        // every pair meets, and every row exists
};

struct VariantWork : Work {
  static constexpr bool kByWarp = true; // for_each_step() is called by all lanes of a warp
  const attention_variant_params &v;

  KJIT_DEVICE VariantWork(const attention_backward_sm90_variant_params &p, bool last_first)
      : Work(p.base, last_first), v(p.variant) {}

  // As Work has it, for the steps that are made. All lanes of a warp.
  template <typename Visit> KJIT_DEVICE void for_each_step(Visit visit) const;

  // What a tile of the step's rows is to the own rows, by the mask on ranges.
  KJIT_DEVICE int state(int query_head, int step) const {
    const variant::Hooks hooks(v);
    const int own_first = tile * cfg::kOwnRows, step_first = step * cfg::kStepRows;
    return cfg::kOwnsKeys ? hooks.state(query_head, step_first, cfg::kStepRows, own_first, cfg::kOwnRows)
                          : hooks.state(query_head, own_first, cfg::kOwnRows, step_first, cfg::kStepRows);
  }
};

// One warp's walk through the steps.
class VariantWalk {
  const VariantWork &work;
  const int lane;
  int index = 0;               // of the query head among those that share the key head
  int first;                   // of the 32 steps that were judged last
  uint32_t left = 0, full = 0; // of these: those that are still to be made, those that need no mask

  // All lanes.
  KJIT_DEVICE void judge() {
    const int step = first + lane;
    const bool exists = step < work.steps.end;
    const int state = exists ? work.state(query_head(), step) : VARIANT_EMPTY;
    left = __ballot_sync(0xffffffffu, state != VARIANT_EMPTY);
    full = __ballot_sync(0xffffffffu, state == VARIANT_FULL && !work.steps.is_masked(step));
  }

  KJIT_DEVICE int query_head() const { return cfg::kOwnsKeys ? work.first_step_head + index : work.head; }

public:
  KJIT_DEVICE VariantWalk(const VariantWork &work, int lane)
      : work(work), lane(lane), first(work.steps.first - kLanesPerWarp) {}

  // Find the next step. All lanes of a warp. @return false when there is none
  KJIT_DEVICE bool next(VariantStep &step) {
    while (left == 0) {
      first += kLanesPerWarp;
      if (first >= work.steps.end) {
        if (++index >= work.step_heads) return false;
        first = work.steps.first;
      }
      judge();
    }
    const int at = __popc((left & (0u - left)) - 1);
    step = {query_head(), work.first_step_head + index, first + at, (full >> at & 1) != 0};
    left &= left - 1;
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
