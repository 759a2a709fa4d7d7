// The append pass: new keys, rotated where tables are given, and new values go to the cache, key i of sequence b to
// position used_k[b] + i. A warp moves one (row, key head) at a time. A position that the cache does not have is
// skipped. A cache of e4m3 gets what 16 bits would get, divided by the head's descale and rounded to nearest even;
// what is beyond 448 becomes 448.
#pragma once
#include <kjit/ptx/e4m3.cuh>
#include <kjit/ptx/griddepcontrol.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/types.cuh>

#include "attention_serving/config.cuh"
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

// With cu_new the sequence is the last one that begins no later than the row; rows behind the last sequence belong to
// none.
KJIT_DEVICE NewRow find(const attention_serving_params &p, int row) {
  if (!p.cu_new) return {row / p.rows_new, row % p.rows_new};
  if (row < p.cu_new[0] || row >= p.cu_new[p.batch]) return {p.batch, 0};
  int low = 0, high = p.batch - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (p.cu_new[middle] <= row)
      low = middle;
    else
      high = middle - 1;
  }
  return {low, row - p.cu_new[low]};
}

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

// Key or value, one row of one head: lane after lane a chunk, or of keys a pair of chunks that are rotated together.
// Values follow keys, so that lanes without a chunk of the key have one of the value.
KJIT_DEVICE void move_row(const attention_serving_params &p, const Chunk *k, const CacheRow &k_to, const Chunk *v,
                          const CacheRow &v_to, int position, int lane) {
  const int rotated = p.cos ? p.rotary_columns / kChunkElements : 0, pieces = p.cos ? rotary::pieces(p) : 0;
  const int of_key = pieces + cfg::kHeadDim / kChunkElements - rotated;
  for (int i = lane; i < of_key + cfg::kHeadDimV / kChunkElements; i += kLanesPerWarp) {
    if (i >= pieces) {
      const int index = i < of_key ? i - pieces + rotated : i - of_key;
      const bool is_key = i < of_key;
      (is_key ? k_to : v_to).put(index, ld_global_nc_16((is_key ? k : v) + index));
      continue;
    }
    Chunk low = ld_global_nc_16(k + i);
    if (p.rotary_interleaved) {
      rotary::turn_interleaved(p, low, i, position);
    } else {
      Chunk high = ld_global_nc_16(k + i + pieces);
      rotary::turn_halves(p, low, high, i, position);
      k_to.put(i + pieces, high);
    }
    k_to.put(i, low);
  }
}

KJIT_DEVICE void run(const attention_serving_params &p) {
  griddepcontrol_launch_dependents(); // the attend pass begins meanwhile, and waits before it reads the cache
  const int lane = (int)threadIdx.x % kLanesPerWarp, warps = (int)gridDim.x * cfg::kWarps;
  const int64_t count = (int64_t)(p.cu_new ? p.rows_new : p.batch * (int64_t)p.rows_new) * p.heads_kv;
  for (int64_t i = (int64_t)blockIdx.x * cfg::kWarps + (int)threadIdx.x / kLanesPerWarp; i < count; i += warps) {
    const int row = (int)(i / p.heads_kv), head = (int)(i % p.heads_kv);
    const NewRow found = find(p, row);
    if (found.sequence >= p.batch) continue;
    const int position = p.used_k[found.sequence] + found.index;
    const int turned = (p.rotary_at ? p.rotary_at[found.sequence] : p.used_k[found.sequence]) + found.index;
    int64_t in_k, in_v;
    if (!locate(p, found.sequence, position, in_k, in_v)) continue;
    const int64_t batch = p.cu_new ? 0 : found.sequence, seq = p.cu_new ? row : found.index;
    const Chunk *const k =
        chunk_at(p.k_new, batch * p.k_new_stride.batch + seq * p.k_new_stride.seq + head * p.k_new_stride.head);
    const Chunk *const v =
        chunk_at(p.v_new, batch * p.v_new_stride.batch + seq * p.v_new_stride.seq + head * p.v_new_stride.head);
    const Descales descales = descales_of(p, found.sequence, head);
    move_row(p, k, CacheRow(p.k, in_k + head * p.k_stride.head, descales.k), v,
             CacheRow(p.v, in_v + head * p.v_stride.head, descales.v), turned, lane);
  }
}

} // namespace append
