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
// Tiles of a head that run at the same time would come to the same queries together, or in causal attention one step
// behind each other: they would wait for the one that stores the first part of a sum. Where the order of additions is
// free they begin at different steps and go on from the first one behind the last. Causal, the masked steps come
// before.
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
  static constexpr bool kSpreads = cfg::kSumsDq && cfg::kStores && (!cfg::kCausal || cfg::kCarries);
  int tile; // of own rows
  int head; // a query head for dq, a key head for dk and dv
  int batch;
  int first_step_head, step_heads; // key head of the query head; query heads that share the key head
  Steps steps;
  int whole, start; // the first step of each head that is not masked; the one of these that comes first

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
        steps(cfg::kOwnsKeys ? query_steps(p.rest, tile) : key_steps(p.rest, tile)), whole(steps.first),
        start(steps.first) {
    if constexpr (kSpreads) {
      if constexpr (cfg::kCausal) whole = steps.whole_first < steps.end ? steps.whole_first : steps.end;
      start = whole + (cfg::kCausal ? (int)((uint64_t)(uint32_t)(tile * p.spread) * (steps.end - whole) >> 32)
                                    : (int)(tile * p.spread >> 32));
    }
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

  KJIT_DEVICE bool has_steps() const { return steps.first < steps.end; }

  // Call visit(head, step) for every step. Consumers only count the steps: their masks need not know which of the
  // unmasked ones comes next.
  template <typename Visit> KJIT_DEVICE void for_each_step(Visit visit) const {
    for (int i = 0; i < step_heads; i++) {
      int step = kSpreads && (!cfg::kCausal || steps.first == whole) ? start : steps.first;
#pragma unroll 1 // the producer has few registers
      for (bool more = has_steps(); more;) {
        visit(first_step_head + i, step);
        step++;
        if (kSpreads && cfg::kCausal && step == whole) { // behind the masked ones
          step = start;
          more = whole < steps.end;
        } else {
          if (kSpreads && step == steps.end) step = whole;
          more = step != (kSpreads ? start : steps.end);
        }
      }
    }
  }
};

#ifdef KJIT_variant
#include "attention_backward_sm90/variant_work.cuh"
#else
using BlockWork = Work;
#endif
