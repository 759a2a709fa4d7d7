// What a block of threads works on: one tile of own rows, and the steps over the other side. All roles of a block walk
// through the same steps in the same order.
#pragma once
#include <kjit/types.cuh>

#include "attention_backward_sm90/config.cuh"
#include "attention_backward_sm90/params.h"
#include "flash_backward/visible.cuh"

struct Work {
  static constexpr bool kByWarp = false; // for_each_step() may be called by one thread
  int tile;                              // of own rows
  int head;                              // a query head for dq, a key head for dk and dv
  int batch;
  int first_step_head, step_heads; // key head of the query head; query heads that share the key head
  Steps steps;

  // `last_first`: the last tile goes to the first block.
  KJIT_DEVICE Work(const attention_backward_sm90_params &p, bool last_first)
      : tile(last_first ? gridDim.x - 1 - blockIdx.x : blockIdx.x), head(blockIdx.y), batch(blockIdx.z),
        first_step_head(cfg::kOwnsKeys ? head * p.rest.heads_per_kv : head / p.rest.heads_per_kv),
        step_heads(cfg::kOwnsKeys ? p.rest.heads_per_kv : 1),
        steps(cfg::kOwnsKeys ? query_steps(p.rest, tile) : key_steps(p.rest, tile)) {}

  // Call visit(head, step) for every step.
  template <typename Visit> KJIT_DEVICE void for_each_step(Visit visit) const {
    for (int i = 0; i < step_heads; i++)
      for (int step = steps.first; step < steps.end; step++)
        visit(first_step_head + i, step);
  }
};

#ifdef KJIT_variant
#include "attention_backward_sm90/variant_work.cuh"
#else
using BlockWork = Work;
#endif
