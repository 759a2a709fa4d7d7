// Stand-in for libcuda: cuTensorMapEncodeTiled. It refuses what the driver refuses ("Tensor Map Object Management" in
// the driver API manual) and encodes the rest in the machine's own form.
#include "driver.h"

#include <algorithm>
#include <cstring>

#include "machine.h"

namespace emulator {
namespace {

constexpr unsigned kMostDimensions = 5;
constexpr uint64_t kMostElements = 1ull << 32, kMostStride = 1ull << 40;
constexpr unsigned kMostBox = 256, kMostElementStride = 8;

unsigned element_bytes(CUtensorMapDataType type) {
  switch (type) {
  case CU_TENSOR_MAP_DATA_TYPE_UINT8:
    return 1;
  case CU_TENSOR_MAP_DATA_TYPE_UINT16:
  case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
  case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
    return 2;
  case CU_TENSOR_MAP_DATA_TYPE_UINT32:
  case CU_TENSOR_MAP_DATA_TYPE_INT32:
  case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
    return 4;
  case CU_TENSOR_MAP_DATA_TYPE_UINT64:
  case CU_TENSOR_MAP_DATA_TYPE_INT64:
  case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
    return 8;
  default:
    return 0;
  }
}

unsigned swizzle_bytes(CUtensorMapSwizzle swizzle) {
  switch (swizzle) {
  case CU_TENSOR_MAP_SWIZZLE_32B:
    return 32;
  case CU_TENSOR_MAP_SWIZZLE_64B:
    return 64;
  case CU_TENSOR_MAP_SWIZZLE_128B:
    return 128;
  default:
    return 0;
  }
}

// The innermost dimension of a box: whole 16-byte pieces, and no wider than the swizzle's pattern.
bool is_row(uint64_t bytes, CUtensorMapSwizzle swizzle) {
  const unsigned pattern = swizzle_bytes(swizzle);
  return bytes % 16 == 0 && (!pattern || bytes <= pattern);
}

bool are_sizes(unsigned rank, const cuuint64_t *sizes, const cuuint32_t *box, const cuuint32_t *every) {
  for (unsigned i = 0; i < rank; i++) {
    if (sizes[i] < 1 || sizes[i] > kMostElements) return false;
    if (box[i] < 1 || box[i] > kMostBox) return false;
    if (every[i] < 1 || every[i] > kMostElementStride) return false;
  }
  return true;
}

bool are_strides(unsigned rank, const cuuint64_t *strides) {
  return std::all_of(strides, strides + rank - 1,
                     [](cuuint64_t stride) { return stride % 16 == 0 && stride < kMostStride; });
}

} // namespace
} // namespace emulator

using namespace emulator;

extern "C" CUresult cuTensorMapEncodeTiled(CUtensorMap *out, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                           const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                                           const cuuint32_t *every, CUtensorMapInterleave interleave,
                                           CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                           CUtensorMapFloatOOBfill fill) {
  const unsigned bytes = element_bytes(type);
  const uint64_t start = reinterpret_cast<uint64_t>(address);
  if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || (rank >= 1 && rank <= kMostDimensions && !bytes))
    return CUDA_ERROR_NOT_SUPPORTED;
  if (!out || !sizes || !strides || !box || !every || rank < 1 || rank > kMostDimensions)
    return CUDA_ERROR_INVALID_VALUE;
  if (!start || start % 16 || promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B) return CUDA_ERROR_INVALID_VALUE;
  if (!are_sizes(rank, sizes, box, every) || !are_strides(rank, strides)) return CUDA_ERROR_INVALID_VALUE;
  if (!is_row(static_cast<uint64_t>(box[0]) * bytes, swizzle)) return CUDA_ERROR_INVALID_VALUE;

  struct emulator_tensor_map map = {};
  map.magic = EMULATOR_TENSOR_MAP_MAGIC;
  map.rank = static_cast<uint8_t>(rank);
  map.element_bytes = static_cast<uint8_t>(bytes);
  map.swizzle = static_cast<uint8_t>(swizzle);
  map.interleave = static_cast<uint8_t>(interleave);
  map.fill = static_cast<uint8_t>(fill);
  map.address = start;
  for (unsigned i = 0; i < rank; i++) {
    map.element_stride[i] = static_cast<uint8_t>(every[i]);
    map.box[i] = static_cast<uint16_t>(box[i]);
    map.size[i] = sizes[i];
    map.stride[i] = i ? strides[i - 1] : bytes;
  }
  memset(out, 0, sizeof *out);
  memcpy(out, &map, sizeof map);
  return CUDA_SUCCESS;
}
