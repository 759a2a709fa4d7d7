// Rotary position embedding: pairs of columns are turned by the angle whose cosine and sine a table has for the row's
// position; computed in fp32, rounded to 16 bits. Columns from rotary_columns on stay what they are.
//
// Whoever includes this has included a config.cuh that defines cfg::Element.
#pragma once
#include <kjit/ptx/cvt.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/types.cuh>

#include "attention_serving/element.cuh"
#include "attention_serving/params.h"

namespace rotary {

// Row `position` of a table. A position that the table does not have takes its nearest row: nothing outside is read.
KJIT_DEVICE const uint32_t *table_row(const attention_serving_params &p, const void *table, int position) {
  const int last = p.rotary_rows - 1, row = position < 0 ? 0 : position > last ? last : position;
  return (const uint32_t *)table + (int64_t)row * (p.rotary_columns / 4);
}

KJIT_DEVICE uint32_t turn_pair(uint32_t word, float cos, float sin) {
  float x, y;
  element_pair<cfg::Element>(word, x, y);
  return cvt_rn_x2(cfg::Element{}, x * cos - y * sin, x * sin + y * cos);
}

// Pairs (2i, 2i + 1): the chunk of columns [8 * index, 8 * index + 8).
KJIT_DEVICE void turn_interleaved(const attention_serving_params &p, Chunk &chunk, int index, int position) {
  const uint32_t *const cos = table_row(p, p.cos, position) + index * 2;
  const uint32_t *const sin = table_row(p, p.sin, position) + index * 2;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    float c0, c1, s0, s1;
    element_pair<cfg::Element>(cos[i], c0, c1);
    element_pair<cfg::Element>(sin[i], s0, s1);
    chunk.word[2 * i] = turn_pair(chunk.word[2 * i], c0, s0);
    chunk.word[2 * i + 1] = turn_pair(chunk.word[2 * i + 1], c1, s1);
  }
}

// Pairs (i, i + rotary_columns / 2): the chunks of columns [8 * index, ...) and [rotary_columns / 2 + 8 * index, ...).
KJIT_DEVICE void turn_halves(const attention_serving_params &p, Chunk &low, Chunk &high, int index, int position) {
  const uint32_t *const cos = table_row(p, p.cos, position) + index * 4;
  const uint32_t *const sin = table_row(p, p.sin, position) + index * 4;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    float c[2], s[2], x[2], y[2];
    element_pair<cfg::Element>(cos[i], c[0], c[1]);
    element_pair<cfg::Element>(sin[i], s[0], s[1]);
    element_pair<cfg::Element>(low.word[i], x[0], x[1]);
    element_pair<cfg::Element>(high.word[i], y[0], y[1]);
    low.word[i] = cvt_rn_x2(cfg::Element{}, x[0] * c[0] - y[0] * s[0], x[1] * c[1] - y[1] * s[1]);
    high.word[i] = cvt_rn_x2(cfg::Element{}, x[0] * s[0] + y[0] * c[0], x[1] * s[1] + y[1] * c[1]);
  }
}

// How many pieces of work a row is, each of one or two chunks.
KJIT_DEVICE int pieces(const attention_serving_params &p) {
  return p.rotary_interleaved ? p.rotary_columns / 8 : p.rotary_columns / 16;
}

// Pieces of a row and, behind them, the chunks that are not turned.
KJIT_DEVICE int items(const attention_serving_params &p, int columns) {
  return p.cos ? pieces(p) + (columns - p.rotary_columns) / kChunkElements : columns / kChunkElements;
}

// One item of a row in memory, turned: put(index, chunk) takes each of its chunks.
template <typename Put>
KJIT_DEVICE void turn_item(const attention_serving_params &p, const Chunk *row, int item, int position, Put put) {
  const int of_row = p.cos ? pieces(p) : 0, turned = p.cos ? p.rotary_columns / kChunkElements : 0;
  if (item >= of_row) {
    const int index = item - of_row + turned;
    put(index, ld_global_nc_16(row + index));
    return;
  }
  Chunk low = ld_global_nc_16(row + item);
  if (p.rotary_interleaved) {
    turn_interleaved(p, low, item, position);
  } else {
    Chunk high = ld_global_nc_16(row + item + of_row);
    turn_halves(p, low, high, item, position);
    put(item + of_row, high);
  }
  put(item, low);
}

// Position of row `query` of a sequence's q.
KJIT_DEVICE int position_of(const attention_serving_params &p, int sequence, int query) {
  const int first = p.rotary_at ? p.rotary_at[sequence] : p.used_k[sequence];
  return p.rotary_by_row ? first + query : first;
}

// Chunk `index` of a row in memory, turned.
KJIT_DEVICE Chunk turned(const attention_serving_params &p, const char *row, int index, int position) {
  Chunk chunk = ld_global_nc_16(row + index * kChunkBytes);
  const int half = p.rotary_columns / (2 * kChunkElements);
  if (index >= 2 * half) return chunk;
  if (p.rotary_interleaved) {
    turn_interleaved(p, chunk, index, position);
    return chunk;
  }
  const bool is_high = index >= half;
  Chunk other = ld_global_nc_16(row + (is_high ? index - half : index + half) * kChunkBytes);
  if (is_high)
    turn_halves(p, other, chunk, index - half, position);
  else
    turn_halves(p, chunk, other, index, position);
  return chunk;
}

} // namespace rotary
