/* A (batch, seq, heads, head_dim) tensor of 16-bit elements as TMA reads it: what its tensor map is encoded from, once
 * for all families that load by TMA. Pure; inline, because each launch describes its tensors to find their maps. */
#ifndef KJIT_ATTENTION_TENSOR_BOX_H
#define KJIT_ATTENTION_TENSOR_BOX_H

#include <stdbool.h>

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

/* How many bytes L2 fetches at a time for rows of so many bytes, their strides in bytes: `most` of rows that are whole
 * lines of 128 bytes. Of other rows that lie apart, what is fetched beside them belongs to heads that nobody has asked
 * for, and may be gone before somebody does (heads of 80 columns of one position would take 1.6 times their bytes), so
 * only what is asked for is fetched; of those that lie side by side it is the next row, a line at a time. */
static inline kjit_map_promotion tensor_box_row_promotion(uint64_t row, uint64_t seq_stride, uint64_t head_stride,
                                                          kjit_map_promotion most) {
  enum { LINE_BYTES = 128 };
  if ((row | seq_stride | head_stride) % LINE_BYTES == 0) return most;
  return seq_stride == row ? KJIT_MAP_PROMOTION_128B : KJIT_MAP_PROMOTION_NONE;
}

static inline kjit_map_promotion tensor_box_promotion(const kjit_tensor *tensor, kjit_map_promotion most) {
  return tensor_box_row_promotion((uint64_t)tensor->shape[TENSOR_BOX_HEAD_DIM] * TENSOR_BOX_ELEMENT_BYTES,
                                  tensor_box_stride_bytes(tensor, TENSOR_BOX_SEQ),
                                  tensor_box_stride_bytes(tensor, TENSOR_BOX_HEADS), most);
}

/* The same where the tiles of neighbouring heads are read at about the same time: of rows that lie side by side with
 * those of other heads, what is fetched beside them is then asked for soon, a line at a time. */
static inline kjit_map_promotion tensor_box_shared_promotion(const kjit_tensor *tensor, kjit_map_promotion most) {
  const kjit_map_promotion alone = tensor_box_promotion(tensor, most);
  const uint64_t row = (uint64_t)tensor->shape[TENSOR_BOX_HEAD_DIM] * TENSOR_BOX_ELEMENT_BYTES;
  const bool is_beside = tensor_box_stride_bytes(tensor, TENSOR_BOX_HEADS) == row;
  return alone == KJIT_MAP_PROMOTION_NONE && is_beside ? KJIT_MAP_PROMOTION_128B : alone;
}

/* The map over (head_dim, seq, heads, batch), innermost axis first, in boxes of `rows` rows of one head. */
static inline struct runtime_tensor tensor_box_describe(const kjit_tensor *tensor, int32_t rows,
                                                        kjit_map_promotion most) {
  return (struct runtime_tensor){
      .address = (uintptr_t)tensor->data,
      .size = {(uint64_t)tensor->shape[TENSOR_BOX_HEAD_DIM], (uint64_t)tensor->shape[TENSOR_BOX_SEQ],
               (uint64_t)tensor->shape[TENSOR_BOX_HEADS], (uint64_t)tensor->shape[TENSOR_BOX_BATCH]},
      .stride = {tensor_box_stride_bytes(tensor, TENSOR_BOX_SEQ), tensor_box_stride_bytes(tensor, TENSOR_BOX_HEADS),
                 tensor_box_stride_bytes(tensor, TENSOR_BOX_BATCH)},
      .box = {(uint32_t)rows, 1},
      .rank = 4,
      .dtype = tensor->dtype,
      .promotion = tensor_box_promotion(tensor, most)};
}

#endif
