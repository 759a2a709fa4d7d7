/* What layers above the runtime ask of it: its parts, their slots, devices, counters, and what a thread of the
 * library's own does before it loads kernels: it takes the device's primary context, because a new thread has none, and
 * leaves alone what other threads capture.
 *
 * Threads: a runtime's parts are set before it is handed out; slots are a list that only grows. */
#include "runtime/runtime_internal.h"

#include "runtime/primary.h"
#include "runtime/runtime_state.h"

const struct mem *runtime_mem(const kjit_runtime *runtime) {
  return &runtime->mem;
}

const struct log *runtime_log(const kjit_runtime *runtime) {
  return &runtime->log;
}

bool runtime_uses_tuned(const kjit_runtime *runtime) {
  return runtime->uses_tuned;
}

struct builder *runtime_builder(kjit_runtime *runtime) {
  return runtime->builder;
}

static void *find_state(const struct push_node *newest, const struct runtime_slot *slot) {
  for (const struct push_node *node = newest; node; node = node->next) {
    const struct runtime_slot_state *const used = (const void *)node;
    if (used->slot == slot) return used->state;
  }
  return NULL;
}

/* The first use of a slot. Of two threads that are both here, the second gives its state up. */
static void *make_state(kjit_runtime *runtime, const struct runtime_slot *slot) {
  struct runtime_slot_state *const made = mem_alloc(&runtime->mem, sizeof *made);
  void *const state = made ? slot->create(runtime) : NULL;
  void *found = NULL;
  if (!state) goto done;
  *made = (struct runtime_slot_state){{push_list_newest(&runtime->slots)}, slot, state};
  do {
    found = find_state(made->node.next, slot);
    if (found) goto done;
  } while (!push_list_add(&runtime->slots, &made->node));
  return state;

done:
  if (state) slot->destroy(runtime, state);
  mem_free(&runtime->mem, made);
  return found;
}

void *runtime_slot_get(kjit_runtime *runtime, const struct runtime_slot *slot) {
  void *const state = find_state(push_list_newest(&runtime->slots), slot);
  return state ? state : make_state(runtime, slot);
}

kjit_status runtime_current_device(kjit_runtime *runtime, int32_t *ordinal, kjit_error *error) {
  return gpu_current(&runtime->gpu, ordinal, error);
}

kjit_status runtime_device_of_launch(kjit_runtime *runtime, int32_t *ordinal, kjit_error *error) {
  return gpu_current_of_launch(&runtime->gpu, ordinal, error);
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

bool runtime_is_tiered(const kjit_runtime *runtime) {
  return runtime->is_tiered;
}

uint32_t runtime_tier_calls(const kjit_runtime *runtime) {
  return runtime->tier_calls;
}

void runtime_count_first_tier(kjit_runtime *runtime) {
  atomic_fetch_add_explicit(&runtime->first_tier_calls, 1, memory_order_relaxed);
}

void runtime_count_tier_swap(kjit_runtime *runtime) {
  atomic_fetch_add_explicit(&runtime->tier_swaps, 1, memory_order_relaxed);
}

void runtime_count_launch(kjit_runtime *runtime) {
  atomic_fetch_add_explicit(&runtime->launches, 1, memory_order_relaxed);
}

static CUdevice handle_of(const kjit_runtime *runtime, const kjit_device_info *device) {
  return runtime->gpu.devices[device->ordinal].handle;
}

bool runtime_primary_is_current(const kjit_runtime *runtime, const kjit_device_info *device) {
  return primary_is_current(&runtime->gpu.driver.cu, handle_of(runtime, device));
}

bool runtime_primary_enter(kjit_runtime *runtime, const kjit_device_info *device) {
  return primary_enter(&runtime->gpu.driver.cu, handle_of(runtime, device));
}

void runtime_primary_leave(kjit_runtime *runtime, const kjit_device_info *device) {
  primary_leave(&runtime->gpu.driver.cu, handle_of(runtime, device));
}

void runtime_thread_leaves_captures(kjit_runtime *runtime) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  (void)runtime->gpu.driver.cu.ThreadExchangeStreamCaptureMode(&mode);
}
