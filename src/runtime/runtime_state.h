/* What a kjit_runtime is made of. For src/runtime alone. */
#ifndef KJIT_RUNTIME_RUNTIME_STATE_H
#define KJIT_RUNTIME_RUNTIME_STATE_H

#include "runtime/gpu.h"
#include "runtime/module.h"
#include "runtime/runtime_internal.h"

typedef void (*runtime_slot_destroy)(kjit_runtime *runtime, void *state);

struct runtime_slot_state {
  _Atomic(void *) state;
  _Atomic(runtime_slot_destroy) destroy;
};

#define CACHE_LINE_BYTES 64

struct kjit_runtime {
  struct mem mem;
  struct log log;
  _Bool uses_tuned;
  struct gate_keeper keeper;
  struct builder *builder;
  struct gpu gpu;
  struct module_table modules;
  struct runtime_slot_state slots[RUNTIME_SLOT_COUNT];
  _Atomic(uint64_t) kernels_loaded, kernels_unloaded;
  /* Written by every launch, so away from what every launch reads. */
  char apart[CACHE_LINE_BYTES];
  _Atomic(uint64_t) launches;
  char apart_too[CACHE_LINE_BYTES];
};

#endif
