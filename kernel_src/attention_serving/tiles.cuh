// From global to shared memory: Q of a tile, and K and V key block by key block, by cp.async.
//
// Rows and columns that do not exist become zeros in shared memory, so that whatever lies in an unused slot, in a
// neighbour's rows or behind a stale entry of a page table is never read: a NaN there cannot reach a product.
#pragma once
#include <kjit/ptx/cp_async.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/types.cuh>

#include "attention_serving/config.cuh"
#include "attention_serving/lengths.cuh"
#include "attention_serving/params.h"
#include "attention_serving/rotary.cuh"
#include "attention_serving/rows.cuh"
#include "attention_serving/tile_chunks.cuh"

// Call visit(row, chunk) for this thread's chunks of a tile, neighbouring threads taking neighbouring chunks of a row.
template <typename Tile, typename Visit> KJIT_DEVICE void for_chunks(Visit visit) {
  constexpr int kChunks = TileChunks<Tile>::kRow, kTotal = Tile::kRows * kChunks;
  // Not more than 8 at a time, because the addresses of the 16 that a thread of two warps has do not fit in registers.
#pragma unroll 8
  for (int i = 0; i < ceil_div(kTotal, cfg::kThreads); i++) {
    const int index = (int)threadIdx.x + i * cfg::kThreads;
    if (kTotal % cfg::kThreads != 0 && index >= kTotal) break;
    visit(index / kChunks, index % kChunks);
  }
}

// Start loading Q; one group of copies.
KJIT_DEVICE void load_query(const attention_serving_params &p, const PackedRows &rows, int sequence, uint32_t tile) {
  const char *const base = (const char *)p.q + sequence * p.q_stride.batch * 2;
  for_chunks<cfg::QTile>([&](int row, int chunk) {
    int query, head;
    const bool inside = rows.find(row, query, head) && chunk * kChunkElements < cfg::kHeadDim;
    const char *from = base;
    if (inside)
      from += ((rows.s.first_row + query) * p.q_stride.seq + head * p.q_stride.head) * 2 + chunk * kChunkBytes;
    cp_async_16_zfill(tile + chunk_offset<cfg::QTile>(row, chunk), from, inside);
  });
  cp_async_commit_group();
}

// Rotate Q where it lies in shared memory. The caller has waited for it, and waits before it is used.
KJIT_DEVICE void rotate_query(const attention_serving_params &p, const PackedRows &rows, int sequence, uint32_t tile) {
  const int begin = p.rotary_at ? p.rotary_at[sequence] : p.used_k[sequence];
  const int pieces = rotary::pieces(p);
  for (int i = (int)threadIdx.x; i < cfg::kRows * pieces; i += cfg::kThreads) {
    const int row = i / pieces, piece = i - row * pieces;
    const int position = p.rotary_by_row ? begin + rows.query(row) : begin;
    const uint32_t at = tile + chunk_offset<cfg::QTile>(row, piece);
    Chunk low = ld_shared_16(at);
    if (p.rotary_interleaved) {
      rotary::turn_interleaved(p, low, piece, position);
    } else {
      const uint32_t high_at = tile + chunk_offset<cfg::QTile>(row, piece + pieces);
      Chunk high = ld_shared_16(high_at);
      rotary::turn_halves(p, low, high, piece, position);
      st_shared_16(high_at, high);
    }
    st_shared_16(at, low);
  }
}

// K and V of one (sequence, key head), from key `first` on in blocks of kKeys, up to key `end`.
//
// With pages, where a block's rows lie is looked up a block ahead: a thread a row reads the page table while the block
// before is computed with, and puts the row's offsets into a table in shared memory.
struct KeyValueSource {
  const attention_serving_params &p;
  const char *k, *v; // key 0, or with pages slot 0 of page 0; of the head
  const int *pages;  // the sequence's row of the page table
  int first, end;
  int first_slot;
  uint32_t tiles, table; // shared memory

  KJIT_DEVICE KeyValueSource(const attention_serving_params &params, const Sequence &s, int head, int first, int end,
                             uint32_t tiles, uint32_t table)
      : p(params), k((const char *)params.k + head * params.k_stride.head * cfg::kCacheBytes),
        v((const char *)params.v + head * params.v_stride.head * cfg::kCacheBytes), pages(nullptr), first(first),
        end(end), first_slot(s.first_slot), tiles(tiles), table(table) {
    if constexpr (cfg::kPaged) {
      pages = p.page_table + s.cache_row * p.page_table_stride;
    } else {
      const int64_t row = p.cu_k ? 0 : s.cache_row;
      k += (row * p.k_stride.batch + s.first_slot * p.k_stride.seq) * cfg::kCacheBytes;
      v += (row * p.v_stride.batch + s.first_slot * p.v_stride.seq) * cfg::kCacheBytes;
    }
  }

  // A thread's row of block j: its page, or -1 where there is none; and its slot.
  struct Slot {
    int page, slot;
  };
  KJIT_DEVICE Slot look_up(int j) const {
    Slot found = {-1, 0};
    const int row = (int)threadIdx.x, key = first + j * cfg::kKeys + row;
    if (row < cfg::kKeys && key < end) {
      const int position = first_slot + key;
      const int index = p.page_shift >= 0 ? position >> p.page_shift : position / p.page_size;
      found.slot = position - index * p.page_size;
      found.page = pages[index];
    }
    return found;
  }
  // Put what look_up(j) found into the table. A page that does not exist counts as a row that does not.
  KJIT_DEVICE void enter(int j, Slot found) const {
    if ((int)threadIdx.x >= cfg::kKeys) return;
    const bool exists = (unsigned)found.page < (unsigned)p.cache_rows;
    const int64_t in_k = exists ? found.page * p.k_stride.batch + found.slot * p.k_stride.seq : -1;
    const int64_t in_v = exists ? found.page * p.v_stride.batch + found.slot * p.v_stride.seq : -1;
    st_shared_16(entry(j, (int)threadIdx.x),
                 {{(uint32_t)in_k, (uint32_t)(in_k >> 32), (uint32_t)in_v, (uint32_t)(in_v >> 32)}});
  }

  // Start loading block j into its stage. Commits nothing.
  KJIT_DEVICE void load(int j) const {
    const uint32_t stage = tiles + j % cfg::kStages * cfg::kStageBytes;
    load_tensor<cfg::KTile, cfg::kHeadDim, 0>(k, p.k_stride.seq, stage, j);
    load_tensor<cfg::VTile, cfg::kHeadDimV, 2>(v, p.v_stride.seq, stage + cfg::KTile::kBytes, j);
  }

private:
  KJIT_DEVICE uint32_t entry(int j, int row) const { return table + (j % 2 * cfg::kKeys + row) * kChunkBytes; }

  template <typename Tile, int kColumns, int kWord>
  KJIT_DEVICE void load_tensor(const char *base, int64_t stride, uint32_t tile, int j) const {
    const int begin = first + j * cfg::kKeys, left = end - begin;
    for_chunks<Tile>([&](int row, int chunk) {
      bool inside = row < left && chunk * cfg::kCacheElements < kColumns;
      int64_t offset = (begin + row) * stride;
      if constexpr (cfg::kPaged) {
        const Chunk at = ld_shared_16(entry(j, row));
        offset = (int64_t)((uint64_t)at.word[kWord + 1] << 32 | at.word[kWord]);
        inside = inside && offset >= 0;
      }
      const char *const from = inside ? base + offset * cfg::kCacheBytes + chunk * kChunkBytes : base;
      cp_async_16_zfill(tile + TileChunks<Tile>::offset(row, chunk), from, inside);
    });
  }
};
