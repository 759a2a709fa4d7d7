/* Tensor maps: the rules of cuTensorMapEncodeTiled() ("Tensor Map Object Management" in the driver API manual) as
 * sentences, then the driver's call, which allocates nothing and is bound to no context. The attention families' maps
 * are such maps too. Thread-safe. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <kjit/tensor.h>
#include <kjit/tensor_map.h>

#include "base/error.h"
#include "base/struct_intake.h"
#include "runtime/runtime_internal.h"
#include "runtime/runtime_state.h"

_Static_assert(sizeof(CUtensorMap) == sizeof(kjit_tensor_map), "a tensor map is 128 bytes");
_Static_assert(sizeof(CUtensorMap) == RUNTIME_TENSOR_MAP_BYTES, "a tensor map is 128 bytes");
_Static_assert(sizeof(cuuint64_t) == sizeof(uint64_t), "sizes and strides are as the driver takes them");
_Static_assert((int)KJIT_MAP_TF32_FTZ == (int)CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ, "the numbers are the driver's");

#define RANK_MAX           RUNTIME_TENSOR_RANK_MAX
#define SIZE_MOST          ((uint64_t)1 << 32)
#define STRIDE_LIMIT       ((uint64_t)1 << 40)
#define BOX_MAX            256u
#define ELEMENT_STRIDE_MAX 8u
#define ALIGNMENT          16u
#define ALIGNMENT_32B      32u /* with 32-byte interleaving, and of packed 4- and 6-bit types */
#define INTERLEAVED_RANK   3u

/* A row of a box of the attention families: the 128-byte swizzle takes rows of 128 bytes. */
#define BOX_BYTES 128

/* Room for a list in a message: five numbers of 20 digits with words between them. */
#define LIST_BYTES 128

/* -- The rules ---------------------------------------------------------------------------------------------------- */

/* Bits of an element in memory. */
static unsigned bits_of(uint32_t dtype) {
  static const unsigned char bits[] = {8, 16, 32, 32, 64, 64, 16, 32, 64, 16, 32, 32, 32, 4, 4, 6};
  return bits[dtype];
}

static bool is_floating(uint32_t dtype) {
  return dtype >= KJIT_MAP_FP16 && dtype <= KJIT_MAP_TF32_FTZ;
}

static bool is_packed(uint32_t dtype) {
  return dtype >= KJIT_MAP_16U4_ALIGN8;
}

/* "options.box[0]: 512; must be 1 to 256 elements": `axis` below 0 leaves the index out. */
static kjit_status refuse(const char *name, const char *field, int axis, uint64_t value, const char *rule,
                          kjit_error *error) {
  char index[16] = "";
  if (axis >= 0) (void)snprintf(index, sizeof index, "[%d]", axis);
  return error_set(error, KJIT_ERR_INVALID_ARG, "%s.%s%s: %llu; %s", name, field, index, (unsigned long long)value,
                   rule);
}

/* The driver answers CUDA_ERROR_INVALID_VALUE to every mistake, so that each of its rules is looked at here, where the
 * member can be named. */
static kjit_status check_kinds(const kjit_tensor_map_options *o, const char *name, kjit_error *error) {
  if (!o->rank || o->rank > RANK_MAX) return refuse(name, "rank", -1, o->rank, "must be 1 to 5", error);
  if (o->dtype > KJIT_MAP_16U6_ALIGN16)
    return refuse(name, "dtype", -1, o->dtype, "must be a kjit_map_dtype, 0 to 15", error);
  if (o->interleave > KJIT_MAP_INTERLEAVE_32B)
    return refuse(name, "interleave", -1, o->interleave, "must be a kjit_map_interleave, 0 to 2", error);
  if (o->swizzle > KJIT_MAP_SWIZZLE_128B_ATOM_64B)
    return refuse(name, "swizzle", -1, o->swizzle, "must be a kjit_map_swizzle, 0 to 6", error);
  if (o->promotion > KJIT_MAP_PROMOTION_256B)
    return refuse(name, "promotion", -1, o->promotion, "must be a kjit_map_promotion, 0 to 3", error);
  if (o->nan_fill > 1) return refuse(name, "nan_fill", -1, o->nan_fill, "must be 0 or 1", error);
  if (o->nan_fill && !is_floating(o->dtype))
    return refuse(name, "nan_fill", -1, o->nan_fill, "only floating point types have a NaN", error);
  if (o->reserved) return refuse(name, "reserved", -1, o->reserved, "must be zero", error);
  if (o->interleave && o->rank < INTERLEAVED_RANK)
    return refuse(name, "rank", -1, o->rank, "must be at least 3 with interleaving", error);
  if (o->interleave == KJIT_MAP_INTERLEAVE_32B && o->swizzle != KJIT_MAP_SWIZZLE_32B)
    return refuse(name, "swizzle", -1, o->swizzle, "must be KJIT_MAP_SWIZZLE_32B with KJIT_MAP_INTERLEAVE_32B", error);
  return KJIT_OK;
}

static uint64_t alignment_of(const kjit_tensor_map_options *o) {
  const bool wide =
      o->interleave == KJIT_MAP_INTERLEAVE_32B || (is_packed(o->dtype) && o->dtype != KJIT_MAP_16U4_ALIGN8);
  return wide ? ALIGNMENT_32B : ALIGNMENT;
}

static const char *alignment_rule(uint64_t alignment) {
  return alignment == ALIGNMENT ? "must be a multiple of 16" : "must be a multiple of 32 with this interleave or dtype";
}

static kjit_status check_memory(const kjit_tensor_map_options *o, const char *name, kjit_error *error) {
  const uint64_t alignment = alignment_of(o);
  if (!o->address || o->address % alignment)
    return refuse(name, "address", -1, o->address, o->address ? alignment_rule(alignment) : "must not be NULL", error);
  for (uint32_t i = 0; i < o->rank; i++)
    if (!o->sizes[i] || o->sizes[i] > SIZE_MOST)
      return refuse(name, "sizes", (int)i, o->sizes[i], "must be 1 to 2^32 elements", error);
  for (uint32_t i = 0; i + 1 < o->rank; i++) {
    if (o->strides[i] % alignment)
      return refuse(name, "strides", (int)i, o->strides[i], alignment_rule(alignment), error);
    if (o->strides[i] >= STRIDE_LIMIT)
      return refuse(name, "strides", (int)i, o->strides[i], "must be below 2^40 bytes", error);
  }
  return KJIT_OK;
}

/* Most bytes of a row of a box; 0 when there is no bound. */
static uint64_t row_most(const kjit_tensor_map_options *o) {
  static const unsigned char most[] = {0, 32, 64, 128, 128, 128, 128};
  return o->interleave ? 0 : most[o->swizzle];
}

static kjit_status check_box(const kjit_tensor_map_options *o, const char *name, kjit_error *error) {
  for (uint32_t i = 0; i < o->rank; i++) {
    if (!o->box[i] || o->box[i] > BOX_MAX)
      return refuse(name, "box", (int)i, o->box[i], "must be 1 to 256 elements", error);
    if (o->element_strides[i] > ELEMENT_STRIDE_MAX)
      return refuse(name, "element_strides", (int)i, o->element_strides[i], "must be 1 to 8, or 0, which means 1",
                    error);
  }
  const uint64_t row = (uint64_t)o->box[0] * bits_of(o->dtype) / 8, most = row_most(o);
  if (!o->interleave && !is_packed(o->dtype) && row % ALIGNMENT)
    return refuse(name, "box", 0, o->box[0], "a row must have a multiple of 16 bytes", error);
  if (most && row > most) return refuse(name, "box", 0, o->box[0], "a row must not be wider than the swizzle", error);
  return KJIT_OK;
}

static kjit_status check(const kjit_tensor_map_options *options, const char *name, kjit_error *error) {
  kjit_status status = check_kinds(options, name, error);
  if (status == KJIT_OK) status = check_memory(options, name, error);
  return status == KJIT_OK ? check_box(options, name, error) : status;
}

/* -- The driver --------------------------------------------------------------------------------------------------- */

/* Write a list of numbers, the outermost axis first. */
static void list(const uint64_t *numbers, uint32_t count, const char *between, char text[LIST_BYTES]) {
  size_t used = 0;
  text[0] = '\0';
  for (uint32_t i = count; i-- > 0 && used < LIST_BYTES;) {
    const int length =
        snprintf(text + used, LIST_BYTES - used, "%llu%s", (unsigned long long)numbers[i], i ? between : "");
    used += length > 0 ? (size_t)length : 0;
  }
}

/* Encode options that have passed the rules. */
static kjit_status encode(const struct driver_api *cu, const kjit_tensor_map_options *o, const char *name, void *map,
                          kjit_error *error) {
  CUtensorMap encoded;
  cuuint64_t sizes[RANK_MAX], strides[RANK_MAX - 1];
  cuuint32_t every[RANK_MAX];
  memcpy(sizes, o->sizes, sizeof sizes);
  memcpy(strides, o->strides, sizeof strides);
  for (uint32_t i = 0; i < RANK_MAX; i++)
    every[i] = o->element_strides[i] ? o->element_strides[i] : 1;
  const CUresult result = cu->TensorMapEncodeTiled(
      &encoded, (CUtensorMapDataType)o->dtype, o->rank, (void *)(uintptr_t)o->address, sizes, strides, o->box, every,
      (CUtensorMapInterleave)o->interleave, (CUtensorMapSwizzle)o->swizzle, (CUtensorMapL2promotion)o->promotion,
      o->nan_fill ? CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA : CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) {
    /* Encode into a local variable and copy, because the alignment that <cuda.h> asks for differs between toolkits. */
    memcpy(map, &encoded, sizeof encoded);
    return KJIT_OK;
  }
  char size_list[LIST_BYTES], stride_list[LIST_BYTES];
  list(o->sizes, o->rank, " x ", size_list);
  list(o->strides, o->rank - 1, ", ", stride_list);
  return driver_fail(cu, KJIT_ERR_UNSUPPORTED, result, error,
                     "%s: the driver makes no tensor map of %s elements, strides %s bytes", name, size_list,
                     stride_list);
}

kjit_status kjit_tensor_map_create(kjit_runtime *runtime, const kjit_tensor_map_options *options, kjit_tensor_map *map,
                                   kjit_error *error) {
  kjit_tensor_map_options known;
  error_clear(error);
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  if (!map) return error_invalid(error, "map", "must not be NULL");
  kjit_status status = struct_intake(&known, sizeof known, options, sizeof known, "options", error);
  if (status == KJIT_OK) status = check(&known, "options", error);
  if (status == KJIT_OK) status = gpu_open(&runtime->gpu, error);
  return status == KJIT_OK ? encode(&runtime->gpu.driver.cu, &known, "options", map, error) : status;
}

/* The maps of the attention families have boxes of 128 bytes of columns with the 128-byte swizzle, or of 64 bytes with
 * that of 64, and go through the same rules, in which `name` is the tensor's. */
kjit_status runtime_tensor_map_encode(kjit_runtime *runtime, const struct runtime_tensor *tensor, const char *name,
                                      void *map, kjit_error *error) {
  const bool is_narrow = tensor->dtype == KJIT_FP8_E4M3, is_half = tensor->box_bytes == BOX_BYTES / 2;
  const uint32_t bytes = is_half ? BOX_BYTES / 2 : BOX_BYTES;
  kjit_tensor_map_options options = {
      .struct_size = sizeof options,
      .address = tensor->address,
      .box = {is_narrow ? bytes : bytes / 2, tensor->box[0], tensor->box[1], tensor->box[2] ? tensor->box[2] : 1, 1},
      .rank = tensor->rank,
      .dtype = is_narrow                    ? KJIT_MAP_UINT8
               : tensor->dtype == KJIT_BF16 ? KJIT_MAP_BF16
                                            : KJIT_MAP_FP16,
      .swizzle = is_half ? KJIT_MAP_SWIZZLE_64B : KJIT_MAP_SWIZZLE_128B,
      .promotion = (uint32_t)tensor->promotion};
  memcpy(options.sizes, tensor->size, sizeof options.sizes);
  memcpy(options.strides, tensor->stride, sizeof options.strides);
  const kjit_status status = check(&options, name, error);
  return status == KJIT_OK ? encode(&runtime->gpu.driver.cu, &options, name, map, error) : status;
}
