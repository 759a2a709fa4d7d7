/* What a kjit_runtime is made of. For src/runtime alone. */
#ifndef KJIT_RUNTIME_RUNTIME_STATE_H
#define KJIT_RUNTIME_RUNTIME_STATE_H

#include <stdbool.h>

#include "base/threads/push.h"
#include "runtime/gpu.h"
#include "runtime/module.h"

struct runtime_slot; /* runtime_internal.h */

/* One slot that is in use. */
struct runtime_slot_state {
  struct push_node node;
  const struct runtime_slot *slot;
  void *state;
};

#define CACHE_LINE_BYTES 64

struct kjit_runtime {
  struct mem mem;
  struct log log;
  bool uses_tuned;
  bool is_tiered;      /* kjit_runtime_options.tiered */
  uint32_t tier_calls; /* and tier_calls */
  struct gate_keeper keeper;
  struct builder *builder;
  struct gpu gpu;
  struct module_table modules;
  struct push_list slots; /* struct runtime_slot_state */
  _Atomic(uint64_t) kernels_loaded, kernels_unloaded, first_tier_calls, tier_swaps;
  /* Written by every launch, so away from what every launch reads. */
  char apart[CACHE_LINE_BYTES];
  _Atomic(uint64_t) launches;
  char apart_too[CACHE_LINE_BYTES];
};

#endif
