#include "base/error.h"
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

/* Setting memory is asynchronous, and streams that do not wait for the legacy one would not wait for it. */
static CUresult clear(const struct driver_api *cu, uint64_t address, size_t bytes) {
  const CUresult result = cu->MemsetD32((CUdeviceptr)address, 0, bytes / sizeof(uint32_t));
  return result == CUDA_SUCCESS ? cu->StreamSynchronize(NULL) : result;
}

kjit_status runtime_memory_create(kjit_runtime *runtime, size_t bytes, struct runtime_memory *out, kjit_error *error) {
  const struct driver_api *const cu = &runtime->gpu.driver.cu;
  CUdeviceptr address = 0;
  *out = (struct runtime_memory){0};
  CUresult result = cu->MemAlloc(&address, bytes);
  if (result != CUDA_SUCCESS)
    return driver_fail(cu, KJIT_ERR_DRIVER, result, error, "allocating %zu bytes on the device", bytes);
  result = clear(cu, address, bytes);
  if (result == CUDA_SUCCESS) result = read_identity(cu, address, &out->identity);
  if (result == CUDA_SUCCESS) {
    out->address = address;
    return KJIT_OK;
  }
  (void)cu->MemFree(address);
  return driver_fail(cu, KJIT_ERR_DRIVER, result, error, "clearing %zu bytes on the device", bytes);
}

void runtime_memory_destroy(kjit_runtime *runtime, struct runtime_memory *memory) {
  const struct driver_api *const cu = &runtime->gpu.driver.cu;
  uint64_t identity;
  if (!memory->address || gpu_is_forked(&runtime->gpu)) return;
  /* The context may have ended since, and somebody else's memory may be at this address. */
  if (read_identity(cu, memory->address, &identity) == CUDA_SUCCESS && identity == memory->identity)
    (void)cu->MemFree((CUdeviceptr)memory->address);
  *memory = (struct runtime_memory){0};
}
