// What a block of threads works on: one tile of own rows, and the steps over the other side. All roles of a block walk
// through the same steps in the same order.
//
// Blocks start in the order of their number. In causal attention tiles differ in length, and a multiprocessor that
// takes a long one when the others have no work left would keep them waiting; so heads form sections, as many as L2 has
// room for, in which the tiles of all heads come by their length.
//
// The kernel that reads the sums of dq begins while the last tiles are worked on. It takes first the heads before
// those, from the latest backwards, because L2 may still have their sums, and then the last ones.
//
// In full attention all tiles of a head would come to the same queries at the same time: they would wait for the one
// that stores the first part of a sum, or add to the same addresses at once. Where the order of additions is free they
// begin at different steps and go on from the first one behind the last.
#pragma once
#include <kjit/types.cuh>

#include "attention_backward_sm90/config.cuh"
#include "attention_backward_sm90/params.h"
#include "flash_backward/visible.cuh"

// Tiles of a head, heads, batch entries.
struct Extent {
  unsigned tiles, heads, batches;

  KJIT_DEVICE explicit Extent(const attention_backward_sm90_params &p)
      : tiles(cfg::kPersistent ? p.grid[0] : gridDim.x), heads(cfg::kPersistent ? p.grid[1] : gridDim.y),
        batches(cfg::kPersistent ? p.grid[2] : gridDim.z) {}
  KJIT_DEVICE unsigned count() const { return tiles * heads * batches; }
};

struct Work {
  static constexpr bool kByWarp = false; // for_each_step() may be called by one thread
  static constexpr bool kSpreads = cfg::kSumsDq && cfg::kStores && !cfg::kCausal;
  int tile; // of own rows
  int head; // a query head for dq, a key head for dk and dv
  int batch;
  int first_step_head, step_heads; // key head of the query head; query heads that share the key head
  Steps steps;
  int start; // the first step of each head

  // `last_first`: the last tile goes to the first block.
  KJIT_DEVICE Work(const attention_backward_sm90_params &p, bool last_first)
      : Work(p, blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z), last_first) {}
  KJIT_DEVICE Work(const attention_backward_sm90_params &p, unsigned number, bool last_first)
      : Work(p, place_of(Extent(p), number, p.section, last_first)) {}

  struct Place {
    int tile, head, batch;
  };

  KJIT_DEVICE Work(const attention_backward_sm90_params &p, Place place)
      : tile(place.tile), head(place.head), batch(place.batch),
        first_step_head(cfg::kOwnsKeys ? head * p.rest.heads_per_kv : head / p.rest.heads_per_kv),
        step_heads(cfg::kOwnsKeys ? p.rest.heads_per_kv : 1),
        steps(cfg::kOwnsKeys ? query_steps(p.rest, tile) : key_steps(p.rest, tile)), start(steps.first) {
    if constexpr (kSpreads) start = (int)(tile * p.spread >> 32);
  }

  // Where the tile of a number lies: tiles of the heads of a section come by their length.
  KJIT_DEVICE static Place place_of(const Extent &all, unsigned number, unsigned section, bool last_first) {
    const unsigned heads = all.heads * all.batches;
    if constexpr (cfg::kIsEnd) {
      const unsigned early = heads - section, index = number / all.tiles;
      const unsigned head = index < early ? early - 1 - index : index;
      return {(int)(number % all.tiles), (int)(head % all.heads), (int)(head / all.heads)};
    }
    const unsigned first = number / (all.tiles * section) * section, within = number - first * all.tiles;
    const unsigned here = heads - first < section ? heads - first : section; // heads of the last section
    const unsigned tile = within / here, head = first + within % here; // the head among those of all batch entries
    return {(int)(last_first ? all.tiles - 1 - tile : tile), (int)(head % all.heads), (int)(head / all.heads)};
  }

  // Call visit(head, step) for every step. Consumers count alone: in full attention their masks do not depend on the
  // step.
  template <typename Visit> KJIT_DEVICE void for_each_step(Visit visit) const {
    for (int i = 0; i < step_heads; i++) {
      int step = start;
#pragma unroll 1 // the producer has few registers
      for (bool more = steps.first < steps.end; more; more = step != (kSpreads ? start : steps.end)) {
        visit(first_step_head + i, step);
        step++;
        if (kSpreads && step == steps.end) step = 0;
      }
    }
  }
};

#ifdef KJIT_variant
#include "attention_backward_sm90/variant_work.cuh"
#else
using BlockWork = Work;
#endif
