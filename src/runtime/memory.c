#include "base/error.h"
#include "runtime/runtime_internal.h"
#include "runtime/runtime_state.h"

/* "A process-wide unique ID for an allocated memory region" (driver API manual, "cuPointerGetAttribute"); 0 for an
 * address that is none. */
static CUresult read_identity(const struct driver_api *cu, uint64_t address, uint64_t *identity) {
  CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_BUFFER_ID;
  unsigned long long id = 0;
  void *value = &id;
  const CUresult result = cu->PointerGetAttributes(1, &attribute, &value, (CUdeviceptr)address);
  *identity = id;
  return result;
}

/* While any thread captures a stream in the global mode, which is the usual one, allocating is an error that ends its
 * capture; not so in the relaxed mode, which is a thread's own (driver API manual,
 * "cuThreadExchangeStreamCaptureMode"). Nothing of ours is captured, so no harm is done.
 * @return the mode to go back to */
static CUstreamCaptureMode set_capture_mode(const struct driver_api *cu, CUstreamCaptureMode mode) {
  (void)cu->ThreadExchangeStreamCaptureMode(&mode);
  return mode;
}

kjit_status runtime_memory_create(kjit_runtime *runtime, size_t bytes, struct runtime_memory *out, kjit_error *error) {
  const struct driver_api *const cu = &runtime->gpu.driver.cu;
  CUdeviceptr address = 0;
  *out = (struct runtime_memory){0};
  const CUstreamCaptureMode mode = set_capture_mode(cu, CU_STREAM_CAPTURE_MODE_RELAXED);
  CUresult result = cu->MemAlloc(&address, bytes);
  if (result == CUDA_SUCCESS) {
    result = read_identity(cu, address, &out->identity);
    if (result == CUDA_SUCCESS)
      out->address = address;
    else
      (void)cu->MemFree(address);
  }
  (void)set_capture_mode(cu, mode);
  if (result == CUDA_SUCCESS) return KJIT_OK;
  return driver_fail(cu, KJIT_ERR_DRIVER, result, error, "allocating %zu bytes on the device", bytes);
}

void runtime_memory_destroy(kjit_runtime *runtime, struct runtime_memory *memory) {
  const struct driver_api *const cu = &runtime->gpu.driver.cu;
  uint64_t identity;
  if (!memory->address || gpu_is_forked(&runtime->gpu)) return;
  const CUstreamCaptureMode mode = set_capture_mode(cu, CU_STREAM_CAPTURE_MODE_RELAXED);
  /* The context may have ended since, and somebody else's memory may be at this address. */
  if (read_identity(cu, memory->address, &identity) == CUDA_SUCCESS && identity == memory->identity)
    (void)cu->MemFree((CUdeviceptr)memory->address);
  (void)set_capture_mode(cu, mode);
  *memory = (struct runtime_memory){0};
}

_Bool runtime_memory_clear(kjit_runtime *runtime, uint64_t address, size_t bytes, CUstream stream) {
  const struct driver_api *const cu = &runtime->gpu.driver.cu;
  return cu->MemsetD32Async((CUdeviceptr)address, 0, bytes / sizeof(uint32_t), stream) == CUDA_SUCCESS;
}

uint64_t runtime_memory_borrow(kjit_runtime *runtime, size_t bytes, CUstream stream) {
  const struct driver_api *const cu = &runtime->gpu.driver.cu;
  CUdeviceptr address = 0;
  if (!cu->MemAllocAsync || !cu->MemFreeAsync) return 0;
  return cu->MemAllocAsync(&address, bytes, stream) == CUDA_SUCCESS ? (uint64_t)address : 0;
}

void runtime_memory_give_back(kjit_runtime *runtime, uint64_t address, CUstream stream) {
  (void)runtime->gpu.driver.cu.MemFreeAsync((CUdeviceptr)address, stream);
}
