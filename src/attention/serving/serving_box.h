/* Keys or values of a serving problem as TMA reads them: what their tensor map is encoded from, once for all families
 * that load by TMA. Pure; inline, because each call describes its tensors to find their maps. */
#ifndef KJIT_ATTENTION_SERVING_SERVING_BOX_H
#define KJIT_ATTENTION_SERVING_SERVING_BOX_H

#include <stdbool.h>

#include <kjit/tensor.h>
#include <kjit/tensor_map.h>

#include "attention/serving/serving_family.h"
#include "attention_serving/params.h"
#include "runtime/runtime_internal.h"

enum {
  SERVING_BOX_ELEMENT_BYTES = 2, /* of 16-bit types */
  SERVING_BOX_BAND_COLUMNS = 64, /* of 16 bits: 128 bytes, the widest swizzle */
  SERVING_BOX_BAND_BYTES = 128,
  SERVING_BOX_PATTERN_ROWS = 8 /* after which the swizzle repeats */
};

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

/* True when one box can have all bands of a head, of which there are several: in pages, with heads that are whole bands
 * and begin with one. */
static inline bool serving_box_has_all_bands(const struct serving_problem *problem) {
  const int64_t band = SERVING_BOX_BAND_COLUMNS, k = problem->head_dim, v = problem->head_dim_v;
  return problem->page_size && problem->is_banded && k % band == 0 && v % band == 0 && (k > band || v > band);
}

/* Bands from a head to the next. */
static inline int32_t serving_box_bands_of_head(const struct attention_serving_params *params,
                                                const struct attention_serving_strides *strides) {
  return params->heads_kv == 1 ? 0 : (int32_t)(strides->head / SERVING_BOX_BAND_COLUMNS);
}

/* Pages of 16-bit elements as (columns of a band, rows of a pattern, bands, patterns, pages): a box is all bands of
 * `rows` positions of a head (kernel_src/kjit/banded_tile.cuh). The bands of all heads are one axis, whose step is a
 * band. */
static inline struct runtime_tensor serving_box_describe_bands(const struct attention_serving_params *params,
                                                               const void *data,
                                                               const struct attention_serving_strides *strides,
                                                               int32_t dtype, int32_t columns, int32_t rows,
                                                               kjit_map_promotion promotion) {
  enum { PATTERN = SERVING_BOX_PATTERN_ROWS };
  const uint64_t bands = (uint64_t)(columns / SERVING_BOX_BAND_COLUMNS), pages = (uint64_t)params->cache_rows;
  const uint64_t heads = (uint64_t)(params->heads_kv - 1) * (uint64_t)serving_box_bands_of_head(params, strides);
  const uint64_t row = serving_box_stride(strides->seq, (uint64_t)params->page_size, (uint64_t)columns);
  const uint64_t patterns = (uint64_t)params->page_size / PATTERN;
  return (struct runtime_tensor){.address = (uintptr_t)data,
                                 .size = {SERVING_BOX_BAND_COLUMNS, PATTERN, heads + bands, patterns, pages},
                                 .stride = {row, SERVING_BOX_BAND_BYTES, row * PATTERN,
                                            serving_box_stride(strides->batch, pages, (uint64_t)columns)},
                                 .box = {PATTERN, (uint32_t)bands, (uint32_t)(rows / PATTERN)},
                                 .rank = 5,
                                 .dtype = dtype,
                                 .promotion = promotion};
}

#endif
