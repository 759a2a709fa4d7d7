// What a block of threads works on: one tile of own rows, and the steps over the other side. All roles of a block walk
// through the same steps in the same order.
//
// Blocks start in the order of their number. In causal attention tiles differ in length, and a multiprocessor that
// takes a long one when the others have no work left would keep them waiting; so heads form sections, as many as L2 has
// room for, in which the tiles of all heads come by their length. The kernel that reads the sums of dq begins with
// those that were added to last, which L2 still has.
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
      : Work(p.rest, place_of(p.section), last_first) {}

private:
  // The number of a tile in the order of a section, and a head among those of all batch entries.
  struct Place {
    int tile, head;
  };

  KJIT_DEVICE static Place place_of(unsigned section) {
    const unsigned heads = gridDim.y * gridDim.z,
                   number = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const unsigned block = cfg::kIsEnd ? gridDim.x * heads - 1 - number : number;
    const unsigned first = block / (gridDim.x * section) * section, within = block - first * gridDim.x;
    const unsigned here = heads - first < section ? heads - first : section; // heads of the last section
    return {(int)(within / here), (int)(first + within % here)};
  }

  KJIT_DEVICE Work(const flash_backward_params &p, Place place, bool last_first)
      : tile(last_first ? gridDim.x - 1 - place.tile : place.tile), head(place.head % gridDim.y),
        batch(place.head / gridDim.y), first_step_head(cfg::kOwnsKeys ? head * p.heads_per_kv : head / p.heads_per_kv),
        step_heads(cfg::kOwnsKeys ? p.heads_per_kv : 1),
        steps(cfg::kOwnsKeys ? query_steps(p, tile) : key_steps(p, tile)) {}

public:
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
