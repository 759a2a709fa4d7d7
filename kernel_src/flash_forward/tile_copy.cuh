// Copies tiles between global and shared memory, 16 bytes a thread at a time: by cp.async, or through registers.
//
// A TileCursor knows which chunks of a tile a thread moves and where they lie; load_tile() and store_tile() move them.
// K and V tiles are copied by all threads of the block, a warp's rows of Q and O by that warp alone.
#pragma once
#include <kjit/ptx/cp_async.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/types.cuh>

// The addresses of one thread in a global tile of `kRows` rows laid out for `Tile`, of which `kThreads` threads move
// one 16-byte chunk each at a time. Neighbouring threads take neighbouring chunks of a row: whole 128-byte lines of
// global memory. One pointer serves all 64-column bands; it is moved from tile to tile instead of being computed anew,
// because a 64-bit product for every tile and chunk would cost more registers than the softmax.
//
// The first `kColumns` columns of a row, a multiple of 8, exist in global memory; the tile may have 8 more.
template <typename Tile, int kColumns, int kRows, int kThreads> struct TileCursor {
  static constexpr bool kPadded = kColumns < Tile::kColumns;
  const char *wide, *band32, *band16; // this thread's first chunk in bands of each width
  const int64_t row_bytes;

  // global: row 0, column 0 of the tile; row_stride in elements.
  KJIT_DEVICE TileCursor(const char *global, int64_t row_stride, int thread)
      : wide(start(global, row_stride, thread, 0)), band32(start(global, row_stride, thread, Tile::kWideBands)),
        band16(start(global, row_stride, thread, Tile::kBands - 1)), row_bytes(row_stride * 2) {}

  // Move to the tile that begins `rows` rows further down.
  KJIT_DEVICE void move(int rows) {
    wide += rows * row_bytes;
    band32 += rows * row_bytes;
    band16 += rows * row_bytes;
  }

  // Call visit(row, exists, pointer, offset) for each of this thread's chunks.
  //   first_row  the first row of the shared tile that is used, a multiple of 8
  //   thread     as given to the constructor
  //   row        the chunk's row, counted from first_row
  //   exists     whether its columns exist in global memory
  //   pointer    the chunk in global memory
  //   offset     its byte offset in the shared tile
  template <typename Visit> KJIT_DEVICE void for_each_chunk(int first_row, int thread, Visit visit) const {
    for_each_in_bands<64, Tile::kWideBands>(wide, 0, first_row, thread, visit);
    for_each_in_bands<32, Tile::kBand32>(band32, Tile::kWideBands, first_row, thread, visit);
    for_each_in_bands<16, Tile::kBand16>(band16, Tile::kBands - 1, first_row, thread, visit);
  }

private:
  template <int kWidth> static KJIT_DEVICE bool chunk_exists(int band, int thread) {
    const int first = Tile::band_column(band);
    return first + kWidth <= kColumns || first + thread % (kWidth / kChunkElements) * kChunkElements < kColumns;
  }

  static KJIT_DEVICE const char *start(const char *global, int64_t row_stride, int thread, int band) {
    const int chunks = Tile::band_width(band) / kChunkElements;
    return global + thread / chunks * row_stride * 2 + Tile::band_column(band) * 2 + thread % chunks * kChunkBytes;
  }

  // `kBands` bands of one width, the first of which is `first_band`.
  template <int kWidth, int kBands, typename Visit>
  KJIT_DEVICE void for_each_in_bands(const char *pointer, int first_band, int first_row, int thread,
                                     Visit visit) const {
    constexpr int kChunks = kWidth / kChunkElements, kTotal = kRows * kChunks, kRowStep = kThreads / kChunks;
    // The empty asm statement hides the value, so that the compiler adds it row after row. Otherwise it would keep
    // every multiple in two registers.
    int64_t step = kRowStep * row_bytes;
    asm volatile("" : "+l"(step));
#pragma unroll
    for (int i = 0; i < (kBands ? ceil_div(kTotal, kThreads) : 0); i++) {
      if ((i + 1) * kThreads > kTotal && thread + i * kThreads >= kTotal) break;
      const int row = thread / kChunks + i * kRowStep;
      const uint32_t offset = Tile::offset_in_band(kWidth, first_row + row, thread % kChunks);
#pragma unroll
      for (int band = 0; band < kBands; band++)
        visit(row, chunk_exists<kWidth>(first_band + band, thread), pointer + band * kWidth * 2,
              Tile::band_offset(first_band + band) + offset);
      pointer += step;
    }
  }
};

// Copy a tile from global memory to the rows from `first_row` on of a shared tile. With kGuarded the rows from
// `valid_rows` on become zeros; otherwise all rows must exist. Columns that do not exist become zeros. With kAsync the
// copies are in flight until cp_async_wait_group(); otherwise they are done when this returns. In both cases other
// threads see them only after a barrier.
template <bool kAsync, bool kGuarded, typename Cursor>
KJIT_DEVICE void load_tile(uint32_t tile_address, int first_row, const Cursor &cursor, int thread, int valid_rows) {
  cursor.for_each_chunk(first_row, thread, [&](int row, bool exists, const char *source, uint32_t offset) {
    const bool inside = exists && (!kGuarded || row < valid_rows);
    if constexpr (kAsync && (kGuarded || Cursor::kPadded)) {
      cp_async_16_zfill(tile_address + offset, source, inside);
    } else if constexpr (kAsync) {
      cp_async_16(tile_address + offset, source);
    } else {
      Chunk chunk = {};
      if (inside) chunk = ld_global_nc_16(source);
      st_shared_16(tile_address + offset, chunk);
    }
  });
}

// Copy the first `valid_rows` of a shared tile's rows from `first_row` on to global memory, in the columns that exist.
template <typename Cursor>
KJIT_DEVICE void store_tile(const Cursor &cursor, uint32_t tile_address, int first_row, int thread, int valid_rows) {
  cursor.for_each_chunk(first_row, thread, [&](int row, bool exists, const char *target, uint32_t offset) {
    const Chunk chunk = ld_shared_16(tile_address + offset);
    if (exists && row < valid_rows) st_global_16((char *)target, chunk);
  });
}
