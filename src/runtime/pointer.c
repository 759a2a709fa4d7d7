/* Checks that kernels on a device can use an address, by asking the driver, so that a wrong pointer becomes an error
 * with a name instead of a fault that ends the context. Any thread; the driver is opened if it is not yet. */
#include "base/error.h"
#include "runtime/runtime_internal.h"
#include "runtime/runtime_state.h"

/* What the driver says of an address; all zero for memory that CUDA does not know. */
struct pointer_facts {
  unsigned int memory_type; /* a CUmemorytype */
  int device;
  CUdeviceptr device_pointer; /* the address at which kernels of the current context find the memory; 0 when they cannot
                                 reach it */
};

/* Ask the driver for all facts in one call. "Unlike cuPointerGetAttribute, this function will not return an error" for
 * memory that it does not know (driver API manual, "cuPointerGetAttributes"). */
static CUresult ask(const struct driver_api *cu, const void *pointer, struct pointer_facts *facts) {
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                      CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
  void *values[] = {&facts->memory_type, &facts->device, &facts->device_pointer};
  *facts = (struct pointer_facts){0};
  return cu->PointerGetAttributes(sizeof values / sizeof *values, attributes, values, (CUdeviceptr)(uintptr_t)pointer);
}

kjit_status runtime_check_pointer(kjit_runtime *runtime, const void *pointer, int32_t ordinal, const char *name,
                                  kjit_error *error) {
  kjit_status status = gpu_open(&runtime->gpu, error);
  if (status != KJIT_OK) return status;
  const struct driver_api *const cu = &runtime->gpu.driver.cu;
  struct pointer_facts facts;
  const CUresult result = ask(cu, pointer, &facts);
  if (result != CUDA_SUCCESS) {
    return driver_fail(cu, KJIT_ERR_DRIVER, result, error, "%s: asking the driver about %p", name, pointer);
  }
  if (facts.device_pointer == (CUdeviceptr)(uintptr_t)pointer && pointer) return KJIT_OK;
  if (!facts.memory_type) {
    return error_set(error, KJIT_ERR_INVALID_ARG,
                     "%s: %p is not memory that CUDA allocated or registered; device %d needs it on a GPU", name,
                     pointer, ordinal);
  }
  return error_set(error, KJIT_ERR_INVALID_ARG, "%s: %p is memory of device %d, which device %d cannot reach", name,
                   pointer, facts.device, ordinal);
}
