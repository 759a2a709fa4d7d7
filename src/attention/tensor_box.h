/* A (batch, seq, heads, head_dim) tensor of 16-bit elements as TMA reads it: what its tensor map is encoded from, once
 * for all families that load by TMA. Pure; inline, because each launch describes its tensors to find their maps. */
#ifndef KJIT_ATTENTION_TENSOR_BOX_H
#define KJIT_ATTENTION_TENSOR_BOX_H

#include <kjit/tensor.h>
#include <kjit/tensor_map.h>

#include "runtime/runtime_internal.h"

enum tensor_box_axis { TENSOR_BOX_BATCH, TENSOR_BOX_SEQ, TENSOR_BOX_HEADS, TENSOR_BOX_HEAD_DIM };

#define TENSOR_BOX_ELEMENT_BYTES 2

/* A tensor map's strides are below this, in elements. */
#define TENSOR_BOX_STRIDE_LIMIT ((INT64_C(1) << 40) / TENSOR_BOX_ELEMENT_BYTES)

/* The stride in bytes. That of an axis of length 1 is never used, but is one that the driver accepts. */
static inline uint64_t tensor_box_stride_bytes(const kjit_tensor *tensor, enum tensor_box_axis axis) {
  const int64_t stride = tensor->shape[axis] == 1 ? tensor->shape[TENSOR_BOX_HEAD_DIM] : tensor->stride[axis];
  return (uint64_t)stride * TENSOR_BOX_ELEMENT_BYTES;
}

/* How many bytes L2 is to fetch at a time for rows of `row_bytes` that are `stride` bytes apart: the most up to 128 that
 * hold nothing of other rows. Otherwise what lies beside a row is fetched with it, and again with the rows of its own:
 * heads of 80 columns of one position take 1.6 times their bytes then. Rows without a gap are fetched together. */
static inline kjit_map_promotion tensor_box_promotion(uint64_t row_bytes, uint64_t stride) {
  if (row_bytes == stride || row_bytes % 128 == 0) return KJIT_MAP_PROMOTION_128B;
  return row_bytes % 64 == 0 ? KJIT_MAP_PROMOTION_64B : KJIT_MAP_PROMOTION_NONE;
}

/* The map over (head_dim, seq, heads, batch), innermost axis first, in boxes of `rows` rows of one head. */
static inline struct runtime_tensor tensor_box_describe(const kjit_tensor *tensor, int32_t rows,
                                                        kjit_map_promotion promotion) {
  return (struct runtime_tensor){
      .address = (uintptr_t)tensor->data,
      .size = {(uint64_t)tensor->shape[TENSOR_BOX_HEAD_DIM], (uint64_t)tensor->shape[TENSOR_BOX_SEQ],
               (uint64_t)tensor->shape[TENSOR_BOX_HEADS], (uint64_t)tensor->shape[TENSOR_BOX_BATCH]},
      .stride = {tensor_box_stride_bytes(tensor, TENSOR_BOX_SEQ), tensor_box_stride_bytes(tensor, TENSOR_BOX_HEADS),
                 tensor_box_stride_bytes(tensor, TENSOR_BOX_BATCH)},
      .box = {(uint32_t)rows, 1},
      .rank = 4,
      .dtype = tensor->dtype,
      .promotion = promotion};
}

#endif
