// Which key blocks a block of threads works on.
//
// A tile is up to kRows rows (queries times the query heads of a group) of one (batch, key head), with all its key
// blocks. All tiles' key blocks, tile after tile, are one long row of blocks, cut into p.runs runs of equal length (to
// one block), one for each block of threads. The part of a run that lies in one tile is a segment.
//
// Where a run ends inside a tile, the tile's segments lie in several runs, and their partial results are merged
// (merge.cuh). Everything here follows from the parameters alone, so that repeated launches divide the work alike.
#pragma once
#include <kjit/types.cuh>

#include "attention_decode_sm90/config.cuh"
#include "attention_decode_sm90/params.h"

// One key block of one tile, and the way to the next.
struct Cursor {
  int batch, head, row_tile; // head: of K and V
  int block;                 // of the tile's key blocks

  KJIT_DEVICE void next_tile(const attention_decode_sm90_params &p) {
    block = 0;
    if (++row_tile < p.row_tiles) return;
    row_tile = 0;
    if (++head < p.heads_kv) return;
    head = 0;
    batch++;
  }
  KJIT_DEVICE void next_block(const attention_decode_sm90_params &p, int blocks) {
    if (++block == blocks) next_tile(p);
  }
};

struct Segment {
  int tile;         // its number
  int first, count; // its key blocks
  int index;        // of the run's segments
  bool whole;       // true when these are all of the tile's key blocks
  bool is_last;     // of the run
  Cursor at;        // its first block
};

struct Schedule {
  const attention_decode_sm90_params &p;
  const int blocks; // key blocks of a tile
  const int run;

  KJIT_DEVICE explicit Schedule(const attention_decode_sm90_params &params)
      : p(params), blocks(ceil_div(params.seq_kv, cfg::kKeyRows)), run(blockIdx.x) {}

  // The first block of a run: floor(number * all blocks / p.runs), without a product that needs 64 bits.
  KJIT_DEVICE int start_of(int number) const {
    const int whole = number * p.run_blocks;
    return p.run_rest == 0 ? whole : whole + (int)((uint32_t)number * (uint32_t)p.run_rest / (uint32_t)p.runs);
  }

  // The run that has a block: the last one that begins at it or before. The first guess is wrong by at most a few runs,
  // because the product is rounded.
  KJIT_DEVICE int run_of(int block) const {
    int number = (int)((float)block * p.runs_per_block);
    if (number > p.runs - 1) number = p.runs - 1;
    while (start_of(number) > block)
      number--;
    while (number < p.runs - 1 && start_of(number + 1) <= block)
      number++;
    return number;
  }

  KJIT_DEVICE Cursor seek(int number) const {
    const int tile = number / blocks, pair = tile / p.row_tiles;
    return {pair / p.heads_kv, pair % p.heads_kv, tile % p.row_tiles, number - tile * blocks};
  }
};
