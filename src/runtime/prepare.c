/* Makes sure that a kernel may be launched with a given amount of dynamic shared memory on a device. Every launch asks
 * runtime_kernel_prepare(), and nearly always one load of an atomic answers.
 *
 * 1. On a kernel's first launch on a device: check that its architecture runs there, and read its attributes.
 * 2. When a launch needs more than the 48 KiB that are allowed without asking: raise the kernel's limit to all that the
 *    device has, so that the driver is asked once, whatever later launches need.
 *
 * `allowed` of a kernel and device is the limit plus 1, and 0 before step 1. It is written last, with release order, by
 * one thread at a time (the gate `preparing`), and read by launching threads without a lock. */
#include "base/error.h"

#include "runtime/runtime_internal.h"
#include "runtime/runtime_state.h"
#include <stdbool.h>

/* Dynamic and static shared memory that a kernel may use without raising its limit (CUDA C++ Programming Guide, "Shared
 * Memory" of each compute capability since 7.x). */
#define SHARED_WITHOUT_OPT_IN (48u * 1024u)

static uint32_t less(uint32_t limit, uint32_t used) {
  return limit > used ? limit - used : 0;
}

static CUresult read_attribute(const struct kjit_kernel *kernel, const struct device *device,
                               CUfunction_attribute attribute, uint32_t *out) {
  int value = 0;
  const CUresult result = kernel->cu->KernelGetAttribute(&value, attribute, kernel->handle, device->handle);
  *out = value > 0 ? (uint32_t)value : 0;
  return result;
}

/* Step 1: the kernel's first launch on this device. */
static kjit_status look_at(struct kjit_kernel *kernel, const struct device *device, struct kernel_on_device *here,
                           kjit_error *error) {
  if (!target_runs_on(&kernel->module->target, device->capability)) {
    return error_set(error, KJIT_ERR_UNSUPPORTED, "kernel \"%.80s\" is for %s, which device %d (%s, %s) cannot run",
                     kernel->name, kernel->module->target.name, device->info.ordinal, device->info.name,
                     device->info.arch);
  }
  CUresult result = read_attribute(kernel, device, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &here->static_shared);
  if (result == CUDA_SUCCESS) {
    result = read_attribute(kernel, device, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &here->max_threads);
  }
  if (result != CUDA_SUCCESS) {
    return driver_fail(kernel->cu, KJIT_ERR_DRIVER, result, error,
                       "the attributes of kernel \"%.80s\" on device %d could not be read", kernel->name,
                       device->info.ordinal);
  }
  const uint32_t allowed = less(SHARED_WITHOUT_OPT_IN, here->static_shared);
  atomic_store_explicit(&here->allowed, 1 + allowed, memory_order_release);
  return KJIT_OK;
}

/* Step 2: raise the kernel's limit to the device's. */
static kjit_status raise_limit(struct kjit_kernel *kernel, const struct device *device, struct kernel_on_device *here,
                               uint32_t bytes, kjit_error *error) {
  const uint32_t limit = device->info.max_shared_per_block, allowed = less(limit, here->static_shared);
  if (bytes > allowed) {
    return error_set(error, KJIT_ERR_UNSUPPORTED,
                     "kernel \"%.80s\": %u bytes of dynamic and %u of static shared memory; device %d (%s) has %u per "
                     "block",
                     kernel->name, bytes, here->static_shared, device->info.ordinal, device->info.arch, limit);
  }
  const CUresult result = kernel->cu->KernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)allowed,
                                                         kernel->handle, device->handle);
  if (result != CUDA_SUCCESS) {
    return driver_fail(kernel->cu, KJIT_ERR_DRIVER, result, error,
                       "kernel \"%.80s\" on device %d: raising its dynamic shared memory to %u bytes", kernel->name,
                       device->info.ordinal, allowed);
  }
  atomic_store_explicit(&here->allowed, 1 + allowed, memory_order_release);
  return KJIT_OK;
}

static bool is_allowed(const struct kernel_on_device *here, uint32_t bytes) {
  return bytes < atomic_load_explicit(&here->allowed, memory_order_acquire);
}

/* Steps 1 and 2, by one thread at a time. */
static kjit_status prepare_in_turn(struct kjit_kernel *kernel, int32_t ordinal, uint32_t bytes, kjit_error *error) {
  struct kernel_on_device *const here = &kernel->on_device[ordinal];
  const struct device *device;
  kjit_status status = gpu_device(kernel->gpu, ordinal, &device, error);
  if (status != KJIT_OK) return status;
  if (!atomic_load_explicit(&here->allowed, memory_order_relaxed)) {
    status = look_at(kernel, device, here, error);
    if (status != KJIT_OK) return status;
  }
  return is_allowed(here, bytes) ? KJIT_OK : raise_limit(kernel, device, here, bytes, error);
}

kjit_status runtime_kernel_prepare(kjit_kernel *kernel, int32_t ordinal, uint32_t bytes, kjit_error *error) {
  if (is_allowed(&kernel->on_device[ordinal], bytes)) return KJIT_OK;
  struct gate_keeper *const keeper = kernel->gpu->keeper;
  (void)gate_enter(keeper, &kernel->preparing);
  const kjit_status status = prepare_in_turn(kernel, ordinal, bytes, error);
  gate_leave(keeper, &kernel->preparing, 0);
  return status;
}
