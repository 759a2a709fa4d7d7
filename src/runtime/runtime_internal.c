#include "runtime/runtime_state.h"

const struct mem *runtime_mem(const kjit_runtime *runtime) {
  return &runtime->mem;
}

const struct log *runtime_log(const kjit_runtime *runtime) {
  return &runtime->log;
}

_Bool runtime_uses_tuned(const kjit_runtime *runtime) {
  return runtime->uses_tuned;
}

struct builder *runtime_builder(kjit_runtime *runtime) {
  return runtime->builder;
}

void *runtime_slot_get(kjit_runtime *runtime, enum runtime_slot slot, void *(*create)(kjit_runtime *runtime),
                       runtime_slot_destroy destroy) {
  struct runtime_slot_state *const here = &runtime->slots[slot];
  void *state = atomic_load_explicit(&here->state, memory_order_acquire);
  if (state) return state;
  void *const made = create(runtime);
  if (!made) return NULL;
  /* Two threads may both be here; they bring the same function. */
  atomic_store_explicit(&here->destroy, destroy, memory_order_relaxed);
  if (atomic_compare_exchange_strong_explicit(&here->state, &state, made, memory_order_acq_rel, memory_order_acquire)) {
    return made;
  }
  destroy(runtime, made);
  return state;
}

kjit_status runtime_current_device(kjit_runtime *runtime, int32_t *ordinal, kjit_error *error) {
  return gpu_current(&runtime->gpu, ordinal, error);
}

const kjit_device_info *runtime_device(kjit_runtime *runtime, int32_t ordinal, kjit_error *error) {
  const struct device *device;
  return gpu_device(&runtime->gpu, ordinal, &device, error) == KJIT_OK ? &device->info : NULL;
}

const kjit_device_info *runtime_known_device(kjit_runtime *runtime, int32_t ordinal) {
  const struct gpu *const gpu = &runtime->gpu;
  if (!gate_is_open(&gpu->gate) || ordinal < 0 || (uint32_t)ordinal >= gpu->device_count) return NULL;
  const struct device *const device = &gpu->devices[ordinal];
  return gate_is_open(&device->gate) ? &device->info : NULL;
}

void runtime_count_launch(kjit_runtime *runtime) {
  atomic_fetch_add_explicit(&runtime->launches, 1, memory_order_relaxed);
}
