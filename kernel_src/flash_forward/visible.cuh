// Which keys a row sees, and which blocks of keys a block of threads therefore visits.
//
// Full attention: all of them. Causal attention is aligned at the bottom right: row i sees the keys up to
// i + seq_kv - seq_q. Blocks of keys that no row of a query tile sees are not visited, but at least one is, so that a
// tile without keys still writes zeros; blocks from first_masked_block() on may hold keys that some row does not see.
#pragma once
#include <kjit/types.cuh>

#include "flash_forward/config.cuh"
#include "flash_forward/params.h"

// The query tile of this block of threads. Causal: those that see most keys start first, so that what is left at the
// end is short.
KJIT_DEVICE uint32_t query_tile() {
  return cfg::kCausal ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
}

// The key and value head of this block of threads.
KJIT_DEVICE uint32_t key_head(const flash_forward_params &p) {
  return cfg::kGrouped ? blockIdx.y / p.heads_per_kv : blockIdx.y;
}

// How many keys a query row sees: the first ones. Below 1: none. The row may lie beyond seq_q, in the last tile.
KJIT_DEVICE int keys_seen(const flash_forward_params &p, int row) {
  if constexpr (!cfg::kCausal) return p.seq_kv;
  const int keys = row + 1 + (p.seq_kv - p.seq_q);
  return keys < p.seq_kv ? keys : p.seq_kv;
}

// Blocks of keys that the tile visits, from the last of them to the first.
KJIT_DEVICE int key_blocks(const flash_forward_params &p) {
  const int keys = keys_seen(p, (query_tile() + 1) * cfg::kQueryRows - 1);
  return cfg::kCausal && keys < 1 ? 1 : (keys - 1) / cfg::kKeyRows + 1;
}

// Keys that exist of the last block visited: 1 to B_c.
KJIT_DEVICE int last_block_rows(const flash_forward_params &p) {
  if constexpr (!cfg::kCausal) return (p.seq_kv - 1) % cfg::kKeyRows + 1;
  const int rows = p.seq_kv - (key_blocks(p) - 1) * cfg::kKeyRows;
  return rows < cfg::kKeyRows ? rows : cfg::kKeyRows;
}

// Every row of the tile sees all keys of the blocks before this one. When the last of all blocks is ragged, it is not
// before this one.
KJIT_DEVICE int first_masked_block(const flash_forward_params &p) {
  const int keys = keys_seen(p, query_tile() * cfg::kQueryRows);
  return keys < 1 ? 0 : keys / cfg::kKeyRows;
}
