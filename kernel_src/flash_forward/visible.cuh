// Which keys a row sees, and which blocks of keys a block of threads therefore visits.
//
// In full attention a row sees all keys. Causal attention is aligned at the bottom right: row i sees the keys up to
// i + seq_kv - seq_q. Blocks of keys that no row of a query tile sees are not visited; at least one block is visited,
// so that a tile without keys still writes zeros. Blocks from first_masked_block() on may hold keys that some row does
// not see.
#pragma once
#include <kjit/types.cuh>

#include "flash_forward/config.cuh"
#include "flash_forward/params.h"

// The query tile of this block of threads. With a causal mask the tiles that see most keys start first, so that the
// tiles that run last are short.
KJIT_DEVICE uint32_t query_tile() {
  return cfg::kCausal ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
}

// The key and value head of this block of threads.
KJIT_DEVICE uint32_t key_head(const flash_forward_params &p) {
  return cfg::kGrouped ? blockIdx.y / p.heads_per_kv : blockIdx.y;
}

// How many keys a query row sees, counted from key 0; 0 or less when it sees none. In the last tile the row may lie
// beyond seq_q.
KJIT_DEVICE int keys_seen(const flash_forward_params &p, int row) {
  if constexpr (!cfg::kCausal) return p.seq_kv;
  const int keys = row + 1 + (p.seq_kv - p.seq_q);
  return keys < p.seq_kv ? keys : p.seq_kv;
}

// How many blocks of keys the tile visits. They are visited from the last to the first.
KJIT_DEVICE int key_blocks(const flash_forward_params &p) {
  const int keys = keys_seen(p, (query_tile() + 1) * cfg::kQueryRows - 1);
  return cfg::kCausal && keys < 1 ? 1 : (keys - 1) / cfg::kKeyRows + 1;
}

// How many keys of the last block of keys exist: 1 to B_c.
KJIT_DEVICE int last_block_rows(const flash_forward_params &p) {
  if constexpr (!cfg::kCausal) return (p.seq_kv - 1) % cfg::kKeyRows + 1;
  const int rows = p.seq_kv - (key_blocks(p) - 1) * cfg::kKeyRows;
  return rows < cfg::kKeyRows ? rows : cfg::kKeyRows;
}

// The first block of keys that needs a mask, because some row of the tile does not see all of its keys. A ragged last
// block counts as such a block.
KJIT_DEVICE int first_masked_block(const flash_forward_params &p) {
  const int keys = keys_seen(p, query_tile() * cfg::kQueryRows);
  return keys < 1 ? 0 : keys / cfg::kKeyRows;
}
