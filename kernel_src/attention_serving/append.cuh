// The append pass: new keys, rotated where tables are given, and new values go to the cache, key i of sequence b to
// position used_k[b] + i. A warp moves one (row, key head) at a time.
#pragma once
#include <kjit/ptx/griddepcontrol.cuh>
#include <kjit/types.cuh>

#include "attention_serving/config.cuh"
#include "attention_serving/new_row.cuh"

namespace append {

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

KJIT_DEVICE void run(const attention_serving_params &p) {
  griddepcontrol_launch_dependents(); // the attend pass begins meanwhile, and waits before it reads the cache
  const int lane = (int)threadIdx.x % kLanesPerWarp, warps = (int)gridDim.x * cfg::kWarps;
  const int64_t count = (int64_t)(p.cu_new ? p.rows_new : p.batch * (int64_t)p.rows_new) * p.heads_kv;
  for (int64_t i = (int64_t)blockIdx.x * cfg::kWarps + (int)threadIdx.x / kLanesPerWarp; i < count; i += warps) {
    const int row = (int)(i / p.heads_kv), head = (int)(i % p.heads_kv);
    const NewRow found = find(p, row);
    if (found.sequence >= p.batch) continue;
    const int position = p.used_k[found.sequence] + found.index;
    int64_t in_k, in_v;
    if (!locate(p, found.sequence, position, in_k, in_v)) continue;
    const Descales descales = descales_of(p, found.sequence, head);
    move_row(p, NewChunks(p, found, row, head), CacheRow(p.k, in_k + head * p.k_stride.head, descales.k),
             CacheRow(p.v, in_v + head * p.v_stride.head, descales.v), rotary_position(p, found), lane);
  }
}

} // namespace append
