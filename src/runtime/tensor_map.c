#include <string.h>

#include <kjit/attention.h>

#include "base/error.h"
#include "runtime/runtime_state.h"

_Static_assert(sizeof(CUtensorMap) == RUNTIME_TENSOR_MAP_BYTES, "a tensor map is 128 bytes");

/* Elements that a row of a box has: the 128-byte swizzle takes rows of 128 bytes. */
#define BOX_COLUMNS 64

static CUresult encode(const struct driver_api *cu, const struct runtime_tensor *tensor, CUtensorMap *map) {
  const CUtensorMapDataType type =
      tensor->dtype == KJIT_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const cuuint64_t sizes[4] = {tensor->size[0], tensor->size[1], tensor->size[2], tensor->size[3]};
  const cuuint64_t strides[3] = {tensor->stride[0], tensor->stride[1], tensor->stride[2]};
  const cuuint32_t box[4] = {BOX_COLUMNS, tensor->box_rows, 1, 1}, every[4] = {1, 1, 1, 1};
  return cu->TensorMapEncodeTiled(map, type, 4, (void *)(uintptr_t)tensor->address, sizes, strides, box, every,
                                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

kjit_status runtime_tensor_map_encode(kjit_runtime *runtime, const struct runtime_tensor *tensor, const char *name,
                                      void *map, kjit_error *error) {
  const struct driver_api *const cu = &runtime->gpu.driver.cu;
  CUtensorMap encoded;
  const CUresult result = encode(cu, tensor, &encoded);
  if (result != CUDA_SUCCESS) {
    return driver_fail(cu, KJIT_ERR_UNSUPPORTED, result, error,
                       "%s: the driver makes no tensor map of %llu x %llu x %llu x %llu elements, strides %llu, %llu, "
                       "%llu bytes",
                       name, (unsigned long long)tensor->size[3], (unsigned long long)tensor->size[2],
                       (unsigned long long)tensor->size[1], (unsigned long long)tensor->size[0],
                       (unsigned long long)tensor->stride[2], (unsigned long long)tensor->stride[1],
                       (unsigned long long)tensor->stride[0]);
  }
  /* By way of a copy: what <cuda.h> asks of the type's alignment differs between toolkits. */
  memcpy(map, &encoded, sizeof encoded);
  return KJIT_OK;
}
