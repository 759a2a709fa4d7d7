// Tiles between global and shared memory, 16 bytes a lane.
#pragma once
#include "core/shared_tile.cuh"
#include "ptx/async_copy.cuh"
#include "ptx/memory.cuh"

// Walk the chunks of rows `first_row` to `first_row + kRows` of a tile that thread `thread` of `kThreads` moves, band by
// band. Neighbouring threads take neighbouring chunks of a row: whole 128-byte lines of global memory.
//   first_row   a multiple of 8
//   global      column 0 of the first row; row_stride in elements
//   visit(row, pointer, offset): row counted from first_row, its chunk in global memory, byte offset in the tile
template <typename Tile, int kRows, int kThreads, typename Visit>
KJIT_DEVICE void for_each_chunk(int first_row, const char *global, int64_t row_stride, int thread, Visit visit) {
#pragma unroll
  for (int band = 0; band < Tile::kBands; band++) {
    const int width = Tile::band_width(band);
    const int chunks = width / kChunkElements;
    const int total = kRows * chunks;
    const int row_step = kThreads / chunks;
    const int first = thread / chunks, chunk = thread % chunks;
    const char *pointer = global + first * row_stride * 2 + (Tile::band_column(band) + chunk * kChunkElements) * 2;
    // Opaque, so that the compiler adds it row by row instead of keeping every multiple in two registers.
    int64_t step = row_step * row_stride * 2;
    asm volatile("" : "+l"(step));
#pragma unroll
    for (int i = 0; i < ceil_div(kRows * 8, kThreads); i++) {
      if (i * kThreads >= total) break;
      if ((i + 1) * kThreads > total && thread + i * kThreads >= total) break;
      const int row = first + i * row_step;
      visit(row, pointer, Tile::band_offset(band) + Tile::offset_in_band(width, first_row + row, chunk));
      pointer += step;
    }
  }
}

// `kRows` global rows into a tile from `first_row` on. Rows from `valid_rows` on become zeros when `kGuarded`; otherwise
// all must exist. With kAsync the copies are in flight until async_copy_wait(); otherwise they are done when this
// returns. Either way other threads see them only after a barrier.
template <typename Tile, int kRows, int kThreads, bool kAsync, bool kGuarded>
KJIT_DEVICE void load_tile(uint32_t tile_address, int first_row, const char *global, int64_t row_stride, int thread,
                           int valid_rows) {
  for_each_chunk<Tile, kRows, kThreads>(
      first_row, global, row_stride, thread, [&](int row, const char *source, uint32_t offset) {
        const bool inside = !kGuarded || row < valid_rows;
        if constexpr (kAsync && kGuarded) {
          async_copy_16_or_zero(tile_address + offset, source, inside);
        } else if constexpr (kAsync) {
          async_copy_16(tile_address + offset, source);
        } else {
          Chunk chunk = {};
          if (inside) chunk = load_global_16(source);
          store_shared_16(tile_address + offset, chunk);
        }
      });
}

// The way back: of `kRows` rows from `first_row` on, the first `valid_rows` to global memory.
template <typename Tile, int kRows, int kThreads>
KJIT_DEVICE void store_tile(char *global, int64_t row_stride, uint32_t tile_address, int first_row, int thread,
                            int valid_rows) {
  for_each_chunk<Tile, kRows, kThreads>(
      first_row, global, row_stride, thread, [&](int row, const char *target, uint32_t offset) {
        const Chunk chunk = load_shared_16(tile_address + offset);
        if (row < valid_rows) store_global_16((char *)target, chunk);
      });
}
