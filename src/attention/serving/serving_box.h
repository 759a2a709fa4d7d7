/* Keys or values of a serving problem as TMA reads them: what their tensor map is encoded from, once for all families
 * that load by TMA. Pure; inline, because each call describes its tensors to find their maps. */
#ifndef KJIT_ATTENTION_SERVING_SERVING_BOX_H
#define KJIT_ATTENTION_SERVING_SERVING_BOX_H

#include <kjit/tensor.h>
#include <kjit/tensor_map.h>

#include "attention_serving/params.h"
#include "runtime/runtime_internal.h"

#define SERVING_BOX_ELEMENT_BYTES 2 /* of 16-bit types */

/* The stride of an axis in bytes. That of an axis of length 1 is never used, but is one that the driver accepts. */
static inline uint64_t serving_box_stride_of(long long stride, uint64_t length, uint64_t columns,
                                             uint64_t element_bytes) {
  return (length == 1 ? columns : (uint64_t)stride) * element_bytes;
}
static inline uint64_t serving_box_stride(long long stride, uint64_t length, uint64_t columns) {
  return serving_box_stride_of(stride, length, columns, SERVING_BOX_ELEMENT_BYTES);
}

/* The map over (columns, positions, heads, rows of the cache or pages), in boxes of `rows` positions of one head. */
static inline struct runtime_tensor serving_box_describe(const struct attention_serving_params *params,
                                                         const void *data,
                                                         const struct attention_serving_strides *strides, int32_t dtype,
                                                         int32_t columns, int32_t rows, kjit_map_promotion promotion) {
  const uint64_t wide = (uint64_t)columns, heads = (uint64_t)params->heads_kv;
  const uint64_t seq = (uint64_t)(params->page_size ? params->page_size : params->rows_k);
  const uint64_t outer = (uint64_t)params->cache_rows;
  const uint64_t bytes = dtype == KJIT_FP8_E4M3 ? 1 : SERVING_BOX_ELEMENT_BYTES;
  return (struct runtime_tensor){.address = (uintptr_t)data,
                                 .size = {wide, seq, heads, outer},
                                 .stride = {serving_box_stride_of(strides->seq, seq, wide, bytes),
                                            serving_box_stride_of(strides->head, heads, wide, bytes),
                                            serving_box_stride_of(strides->batch, outer, wide, bytes)},
                                 .box = {(uint32_t)rows, 1},
                                 .rank = 4,
                                 .dtype = dtype,
                                 .promotion = promotion};
}

#endif
