#include <stdio.h>
#include <string.h>

#include <kjit/tensor.h>

#include "base/error.h"
#include "runtime/runtime_internal.h"
#include "runtime/runtime_state.h"

_Static_assert(sizeof(CUtensorMap) == RUNTIME_TENSOR_MAP_BYTES, "a tensor map is 128 bytes");
_Static_assert(sizeof(cuuint64_t) == sizeof(uint64_t), "sizes and strides are as the driver takes them");

/* Elements that a row of a box has: the 128-byte swizzle takes rows of 128 bytes. */
#define BOX_COLUMNS 64

/* Five numbers of 20 digits with words between them. */
#define LIST_BYTES 128

static CUresult encode(const struct driver_api *cu, const struct runtime_tensor *tensor, CUtensorMap *map) {
  const CUtensorMapDataType type =
      tensor->dtype == KJIT_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const cuuint32_t box[RUNTIME_TENSOR_RANK_MAX] = {BOX_COLUMNS, tensor->box[0], tensor->box[1], 1, 1};
  const cuuint32_t every[RUNTIME_TENSOR_RANK_MAX] = {1, 1, 1, 1, 1};
  cuuint64_t sizes[RUNTIME_TENSOR_RANK_MAX], strides[RUNTIME_TENSOR_RANK_MAX - 1];
  memcpy(sizes, tensor->size, sizeof sizes);
  memcpy(strides, tensor->stride, sizeof strides);
  return cu->TensorMapEncodeTiled(map, type, tensor->rank, (void *)(uintptr_t)tensor->address, sizes, strides, box,
                                  every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

/* Outermost first. */
static void list(const uint64_t *numbers, uint32_t count, const char *between, char text[LIST_BYTES]) {
  size_t used = 0;
  text[0] = '\0';
  for (uint32_t i = count; i-- > 0 && used < LIST_BYTES;) {
    const int length =
        snprintf(text + used, LIST_BYTES - used, "%llu%s", (unsigned long long)numbers[i], i ? between : "");
    used += length > 0 ? (size_t)length : 0;
  }
}

kjit_status runtime_tensor_map_encode(kjit_runtime *runtime, const struct runtime_tensor *tensor, const char *name,
                                      void *map, kjit_error *error) {
  const struct driver_api *const cu = &runtime->gpu.driver.cu;
  CUtensorMap encoded;
  const CUresult result = encode(cu, tensor, &encoded);
  if (result != CUDA_SUCCESS) {
    char sizes[LIST_BYTES], strides[LIST_BYTES];
    list(tensor->size, tensor->rank, " x ", sizes);
    list(tensor->stride, tensor->rank - 1, ", ", strides);
    return driver_fail(cu, KJIT_ERR_UNSUPPORTED, result, error,
                       "%s: the driver makes no tensor map of %s elements, strides %s bytes", name, sizes, strides);
  }
  /* By way of a copy: what <cuda.h> asks of the type's alignment differs between toolkits. */
  memcpy(map, &encoded, sizeof encoded);
  return KJIT_OK;
}
