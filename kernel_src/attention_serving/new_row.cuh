// A new key and value on their way into the cache: where they come from and go to, and moving them. A key is rotated
// where tables are given. A cache of e4m3 gets what 16 bits would get, divided by the head's descale and rounded to
// nearest even; what is beyond 448 becomes 448. A position that the cache does not have is skipped.
//
// Whoever includes this has included a config.cuh that defines cfg::Element, kHeadDim, kHeadDimV, kNarrow and
// kCacheBytes.
#pragma once
#include <kjit/ptx/e4m3.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/types.cuh>

#include "attention_serving/descale.cuh"
#include "attention_serving/element.cuh"
#include "attention_serving/lengths.cuh"
#include "attention_serving/params.h"
#include "attention_serving/rotary.cuh"

namespace append {

// A row of k_new: its sequence, and its place among the sequence's rows.
struct NewRow {
  int sequence, index;
};

// Offsets of a position in the cache of keys and in that of values, in elements; false where there is none.
KJIT_DEVICE bool locate(const attention_serving_params &p, int b, int position, int64_t &in_k, int64_t &in_v) {
  const int row = p.cache_index ? p.cache_index[b] : b;
  if (position < 0 || position >= cache_capacity(p, 0)) return false;
  int64_t outer = row;
  int slot = position;
  if (p.page_size) {
    outer = p.page_table[row * p.page_table_stride + position / p.page_size];
    slot = position % p.page_size;
  }
  in_k = outer * p.k_stride.batch + slot * p.k_stride.seq;
  in_v = outer * p.v_stride.batch + slot * p.v_stride.seq;
  return outer >= 0 && outer < p.cache_rows;
}

KJIT_DEVICE const Chunk *chunk_at(const void *base, int64_t element) {
  return (const Chunk *)((const char *)base + element * 2);
}

// A row of the cache, of one head; what its elements are multiplied by when they are read.
struct CacheRow {
  char *at;
  float descale, inverse;

  KJIT_DEVICE CacheRow(const void *base, int64_t element, float descale)
      : at((char *)(uint64_t)base + element * cfg::kCacheBytes), descale(descale),
        inverse(cfg::kNarrow ? div_rn(1.0f, descale) : 1.0f) {}

  // Write the elements of chunk `index` of a row of 16-bit elements.
  KJIT_DEVICE void put(int index, const Chunk &chunk) const {
    if constexpr (!cfg::kNarrow) {
      st_global_16((Chunk *)at + index, chunk);
    } else {
      uint32_t pairs[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float low, high;
        element_pair<cfg::Element>(chunk.word[i], low, high);
        pairs[i] = cvt_e4m3_x2(divided(low), divided(high));
      }
      ((Eight *)at)[index] = {{pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16}};
    }
  }

private:
  // The quotient by the descale, rounded to nearest: one step of Newton's method from the product with the inverse,
  // because a division by instructions costs ten times as much. What is far beyond e4m3 stays as it is.
  KJIT_DEVICE float divided(float value) const {
    const float near = value * inverse;
    return fabsf(near) < 1024.0f ? fmaf(fmaf(-near, descale, value), inverse, near) : near;
  }

  struct alignas(8) Eight {
    uint32_t word[2];
  };
};

// Where new row `row` of one head lies in k_new and v_new.
struct NewChunks {
  const Chunk *k, *v;

  KJIT_DEVICE NewChunks(const attention_serving_params &p, const NewRow &row, int of_all, int head) {
    const int64_t batch = p.cu_new ? 0 : row.sequence, seq = p.cu_new ? of_all : row.index;
    k = chunk_at(p.k_new, batch * p.k_new_stride.batch + seq * p.k_new_stride.seq + head * p.k_new_stride.head);
    v = chunk_at(p.v_new, batch * p.v_new_stride.batch + seq * p.v_new_stride.seq + head * p.v_new_stride.head);
  }
};

// The position by which a new key is rotated.
KJIT_DEVICE int rotary_position(const attention_serving_params &p, const NewRow &row) {
  return (p.rotary_at ? p.rotary_at[row.sequence] : p.used_k[row.sequence]) + row.index;
}

// Key or value, one row of one head: lane after lane an item of the key (rotary.cuh), or a chunk of the value. Values
// follow keys, so that lanes without an item of the key have a chunk of the value. A Row takes them by put(index,
// chunk).
template <typename Row>
KJIT_DEVICE void move_row(const attention_serving_params &p, const NewChunks &from, const Row &k_to, const Row &v_to,
                          int position, int lane) {
  const int of_key = rotary::items(p, cfg::kHeadDim);
#pragma unroll 1
  for (int i = lane; i < of_key + cfg::kHeadDimV / kChunkElements; i += kLanesPerWarp) {
    if (i < of_key)
      rotary::turn_item(p, from.k, i, position, [&](int index, const Chunk &chunk) { k_to.put(index, chunk); });
    else
      v_to.put(i - of_key, ld_global_nc_16(from.v + i - of_key));
  }
}

} // namespace append
