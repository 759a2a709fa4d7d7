/* Device memory that a kernel family keeps for itself, such as counters and partial results: allocated once and freed
 * with the family's state, or borrowed from a stream for one call.
 *
 * Allocating must not disturb a program that captures a graph on another thread, and freeing must not hit memory that
 * somebody else received at the same address after a context had ended; the comments below say how. Every function
 * calls the driver in the current context and may be called by any thread. */
#include "base/error.h"

#include "runtime/runtime_internal.h"
#include "runtime/runtime_state.h"
#include <stdbool.h>

/* The driver's number of an allocation: "A process-wide unique ID for an allocated memory region" (driver API manual,
 * "cuPointerGetAttribute"). 0 for an address that is not allocated. */
static CUresult read_identity(const struct driver_api *cu, uint64_t address, uint64_t *identity) {
  CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_BUFFER_ID;
  unsigned long long id = 0;
  void *value = &id;
  const CUresult result = cu->PointerGetAttributes(1, &attribute, &value, (CUdeviceptr)address);
  *identity = id;
  return result;
}

/* Set this thread's capture mode. While any thread captures a stream in the global mode, which is the usual one, an
 * allocation by any other thread is an error that ends the capture. In the relaxed mode, which a thread sets for
 * itself, it is allowed (driver API manual, "cuThreadExchangeStreamCaptureMode"). It does no harm, because nothing that
 * kjit allocates here is captured.
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
  /* The context may have ended since, and another allocation may have received this address, so the number is compared.
   */
  if (read_identity(cu, memory->address, &identity) == CUDA_SUCCESS && identity == memory->identity)
    (void)cu->MemFree((CUdeviceptr)memory->address);
  (void)set_capture_mode(cu, mode);
  *memory = (struct runtime_memory){0};
}

bool runtime_memory_clear(kjit_runtime *runtime, uint64_t address, size_t bytes, CUstream stream) {
  const struct driver_api *const cu = &runtime->gpu.driver.cu;
  return cu->MemsetD32Async((CUdeviceptr)address, 0, bytes / sizeof(uint32_t), stream) == CUDA_SUCCESS;
}

kjit_status runtime_memory_fill(kjit_runtime *runtime, const struct runtime_rows *rows, uint32_t value, CUstream stream,
                                kjit_error *error) {
  const struct driver_api *const cu = &runtime->gpu.driver.cu;
  const CUdeviceptr address = (CUdeviceptr)rows->address;
  const CUresult result = rows->rows == 1
                              ? cu->MemsetD32Async(address, value, rows->words, stream)
                              : cu->MemsetD2D32Async(address, rows->pitch, value, rows->words, rows->rows, stream);
  if (result == CUDA_SUCCESS) return KJIT_OK;
  return driver_fail(cu, KJIT_ERR_DRIVER, result, error, "filling %llu rows of %llu words on the device",
                     (unsigned long long)rows->rows, (unsigned long long)rows->words);
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
