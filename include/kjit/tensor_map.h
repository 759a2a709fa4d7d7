/**
 * @file
 * Tensor maps: what TMA (sm_90 and later) must know of a tensor, as an argument of a kernel.
 */
#ifndef KJIT_TENSOR_MAP_H
#define KJIT_TENSOR_MAP_H

#include <kjit/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A tensor map: hand it to a kernel as a `const __grid_constant__ CUtensorMap` argument (KJIT_ARG(map)). 128 bytes, at
   any address: a launch copies it to where the kernel finds it aligned. */
typedef struct kjit_tensor_map {
  uint64_t opaque[16];
} kjit_tensor_map;

/** Element types. The numbers are those of CUtensorMapDataType. */
typedef enum kjit_map_dtype {
  KJIT_MAP_UINT8 = 0,
  KJIT_MAP_UINT16 = 1,
  KJIT_MAP_UINT32 = 2,
  KJIT_MAP_INT32 = 3,
  KJIT_MAP_UINT64 = 4,
  KJIT_MAP_INT64 = 5,
  KJIT_MAP_FP16 = 6,
  KJIT_MAP_FP32 = 7,
  KJIT_MAP_FP64 = 8,
  KJIT_MAP_BF16 = 9,
  KJIT_MAP_FP32_FTZ = 10,
  KJIT_MAP_TF32 = 11,
  KJIT_MAP_TF32_FTZ = 12,
  KJIT_MAP_16U4_ALIGN8 = 13,  /**< 4-bit, 16 elements in 8 bytes of shared memory; sm_100 and later  */
  KJIT_MAP_16U4_ALIGN16 = 14, /**< 4-bit, 16 elements in 16 bytes of shared memory; sm_100 and later */
  KJIT_MAP_16U6_ALIGN16 = 15  /**< 6-bit, 16 elements in 16 bytes of shared memory; sm_100 and later */
} kjit_map_dtype;

/** Interleaving of the channels, for layouts such as NC/8HWC8. */
typedef enum kjit_map_interleave {
  KJIT_MAP_INTERLEAVE_NONE = 0,
  KJIT_MAP_INTERLEAVE_16B = 1,
  KJIT_MAP_INTERLEAVE_32B = 2
} kjit_map_interleave;

/** How 16-byte pieces of a box's rows are permuted in shared memory. The width is the most that a row may have. */
typedef enum kjit_map_swizzle {
  KJIT_MAP_SWIZZLE_NONE = 0,
  KJIT_MAP_SWIZZLE_32B = 1,
  KJIT_MAP_SWIZZLE_64B = 2,
  KJIT_MAP_SWIZZLE_128B = 3,
  KJIT_MAP_SWIZZLE_128B_ATOM_32B = 4,         /**< permutes pieces of 32 bytes; sm_100 and later */
  KJIT_MAP_SWIZZLE_128B_ATOM_32B_FLIP_8B = 5, /**< sm_100 and later                             */
  KJIT_MAP_SWIZZLE_128B_ATOM_64B = 6          /**< permutes pieces of 64 bytes; sm_100 and later */
} kjit_map_swizzle;

/** How much of memory the L2 cache fetches for a read. */
typedef enum kjit_map_promotion {
  KJIT_MAP_PROMOTION_NONE = 0,
  KJIT_MAP_PROMOTION_64B = 1,
  KJIT_MAP_PROMOTION_128B = 2,
  KJIT_MAP_PROMOTION_256B = 3
} kjit_map_promotion;

/** What a tiled tensor map says. Axis 0 is the innermost one, whose elements lie side by side. */
typedef struct kjit_tensor_map_options {
  size_t struct_size;
  uint64_t address;    /**< of the first element: a multiple of 16; of 32 with KJIT_MAP_INTERLEAVE_32B         */
  uint64_t sizes[5];   /**< elements along each axis, 1 to 2^32                                                */
  uint64_t strides[4]; /**< bytes between neighbours on axis 1 and on: multiples of 16 below 2^40 (of 32 with
                            KJIT_MAP_INTERLEAVE_32B)                                                           */
  uint32_t box[5];     /**< elements of a copy along each axis, 1 to 256                                       */
  uint32_t element_strides[5]; /**< every n-th element along an axis, 1 to 8; 0 means 1                              */
  uint32_t rank;       /**< axes in use, 1 to 5; at least 3 with interleaving                                  */
  uint32_t dtype;      /**< a ::kjit_map_dtype                                                                 */
  uint32_t interleave; /**< a ::kjit_map_interleave                                                            */
  uint32_t swizzle;    /**< a ::kjit_map_swizzle                                                               */
  uint32_t promotion;  /**< a ::kjit_map_promotion                                                             */
  uint32_t nan_fill;   /**< 1: what lies outside reads as NaN, for floating point types; 0: as zero            */
  uint32_t reserved;   /**< zero                                                                               */
} kjit_tensor_map_options;

static inline kjit_tensor_map_options kjit_tensor_map_options_default(void) {
  kjit_tensor_map_options options = KJIT_ZERO;
  options.struct_size = sizeof options;
  return options;
}

/**
 * Make a tensor map. It is bound to no context; the memory need not exist yet.
 *
 * @param      runtime  the runtime
 * @param      options  the tensor and how it is read; borrowed for the call
 * @param[out] map  128 bytes
 * @retval KJIT_OK
 * @retval KJIT_ERR_INVALID_ARG  a field breaks a rule of TMA: the message has field, value and rule
 * @retval KJIT_ERR_UNSUPPORTED  the driver refuses it all the same, as for a type that the device does not have
 * @retval KJIT_ERR_NO_DRIVER
 * @par Thread safety  Thread-safe.
 */
KJIT_API KJIT_NODISCARD kjit_status kjit_tensor_map_create(kjit_runtime *runtime,
                                                           const kjit_tensor_map_options *options, kjit_tensor_map *map,
                                                           kjit_error *error);

#ifdef __cplusplus
}
#endif
#endif
