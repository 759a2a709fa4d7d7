/**
 * @file
 * Element types, and tensors as the caller holds them: views of memory that kjit never owns.
 */
#ifndef KJIT_TENSOR_H
#define KJIT_TENSOR_H

#include <kjit/common.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Element types. The numbers are PyTorch's ScalarType, as PyTorch's configs print them. */
typedef enum kjit_dtype {
  KJIT_DTYPE_NONE = 0,
  KJIT_INT32 = 3,
  KJIT_FP16 = 5,
  KJIT_FP32 = 6,
  KJIT_BF16 = 15,
  KJIT_FP8_E4M3 = 24 /**< float8_e4m3fn: NaN, no infinity */
} kjit_dtype;

/** kjit_tensor.device of memory that no GPU owns. */
#define KJIT_DEVICE_HOST (-1)

/** A view of memory that the caller owns. 88 bytes. */
typedef struct kjit_tensor {
  void *data;        /**< address of element (0, …, 0)                      */
  int32_t dtype;     /**< a ::kjit_dtype                                    */
  int32_t device;    /**< CUDA ordinal, or ::KJIT_DEVICE_HOST               */
  uint32_t rank;     /**< number of axes in use, at most 4                  */
  uint32_t reserved; /**< zero                                              */
  int64_t shape[4];  /**< elements along each axis                          */
  int64_t stride[4]; /**< elements, not bytes, between neighbours on an axis */
} kjit_tensor;

/**
 * A contiguous (batch, seq, heads, head_dim) tensor.
 * The logical axes of q, k, v, o are always in this order, whatever the layout in memory.
 * @param data      address of element (0, 0, 0, 0)
 * @param dtype     element type
 * @param device    CUDA ordinal, or ::KJIT_DEVICE_HOST
 * @param batch     number of sequences
 * @param seq       tokens in a sequence
 * @param heads     attention heads
 * @param head_dim  elements of a head
 * @return the view; strides follow from the shape
 */
static inline kjit_tensor kjit_tensor_bshd(void *data, kjit_dtype dtype, int32_t device, int64_t batch, int64_t seq,
                                           int64_t heads, int64_t head_dim) {
  kjit_tensor t = {data,
                   (int32_t)dtype,
                   device,
                   4,
                   0,
                   {batch, seq, heads, head_dim},
                   {seq * heads * head_dim, heads * head_dim, head_dim, 1}};
  return t;
}

/**
 * A view with the axes (batch, seq, heads, head_dim) of memory that holds (batch, heads, seq, head_dim) contiguously.
 * The parameters are those of kjit_tensor_bshd().
 */
static inline kjit_tensor kjit_tensor_bhsd(void *data, kjit_dtype dtype, int32_t device, int64_t batch, int64_t heads,
                                           int64_t seq, int64_t head_dim) {
  kjit_tensor t = {data,
                   (int32_t)dtype,
                   device,
                   4,
                   0,
                   {batch, seq, heads, head_dim},
                   {seq * heads * head_dim, head_dim, seq * head_dim, 1}};
  return t;
}

#ifdef __cplusplus
}
#endif
#endif
