/**
 * @file
 * What all attention kernels share: tensors as the caller holds them, and the arguments of a forward call.
 */
#ifndef KJIT_ATTENTION_H
#define KJIT_ATTENTION_H

#include <kjit/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Element types. The numbers are PyTorch's ScalarType, as the seeds' configs print them. */
typedef enum kjit_dtype { KJIT_DTYPE_NONE = 0, KJIT_FP16 = 5, KJIT_FP32 = 6, KJIT_BF16 = 15 } kjit_dtype;

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

/** The same view of memory that holds (batch, heads, seq, head_dim) contiguously. */
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

/**
 * Arguments of attention forward: O = softmax(scale · Q·Kᵀ)·V for each (batch, head), in fp32, rounded once.
 *
 * q, o: (batch, seq_q, heads, head_dim); k, v: (batch, seq_kv, heads, head_dim), all of one dtype, on the current
 * device, head_dim contiguous, data 16-byte aligned and the other strides multiples of 16 bytes. Every axis has at
 * least one element; batch and heads at most 65535, a sequence at most 2^31 - 256. Strides are not negative; those of
 * q, k and v may be 0 (the same data for every index). o and lse have memory of their own, and their axes nest: a
 * stride is at least what the axes with smaller strides span. The stride of an axis of length 1 is not looked at.
 */
typedef struct kjit_attention_args {
  size_t struct_size;
  kjit_tensor q, k, v;
  kjit_tensor o;     /**< written                                                                              */
  kjit_tensor lse;   /**< ln Σ exp(scale·q·k): (batch, heads, seq_q) fp32, seq_q contiguous; data NULL: not wanted */
  float scale;       /**< softmax scale, > 0 and finite; 0: 1/√head_dim                                        */
  uint32_t reserved; /**< zero                                                                                 */
} kjit_attention_args;

static inline kjit_attention_args kjit_attention_args_default(void) {
  kjit_attention_args args = KJIT_ZERO;
  args.struct_size = sizeof args;
  return args;
}

#ifdef __cplusplus
}
#endif
#endif
