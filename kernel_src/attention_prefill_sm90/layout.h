/* Sizes from which the host computes a launch's memory and by which the attention_prefill_sm90 kernel lays it out, read
 * by the C compiler and by NVRTC. What this kernel adds to attention_sm90's shared memory (tile.cuh) lies behind it. */
#ifndef KJIT_KERNEL_SRC_ATTENTION_PREFILL_SM90_LAYOUT_H
#define KJIT_KERNEL_SRC_ATTENTION_PREFILL_SM90_LAYOUT_H

enum {
  PREFILL_TILE_BYTES = 48,        /* a tile's coordinates, for each Q buffer */
  PREFILL_FLAG_BYTES = 16,        /* one word for each warp that converts Q */
  PREFILL_LOADS_BANDS = 0,        /* the field `loads`: boxes of one band of 64 columns of K or V */
  PREFILL_LOADS_GROUPS = 1,       /* boxes of all bands, from pages */
  PREFILL_LOADS_ROWS = 2,         /* no boxes: row by row, from pages of any size, by a warpgroup of its own */
  PREFILL_LOADS_WIDENED_ROWS = 3, /* the same from a cache of e4m3, whose elements become 16 bits on the way */
  PREFILL_LOADS_WIDENED = 4,      /* boxes of 128 columns of a cache of e4m3, widened in shared memory */
  PREFILL_GATHERED_COLUMNS = 192, /* columns of V for which a thread of four warpgroups has registers */
  PREFILL_PATTERN_ROWS = 8,       /* rows of 128 bytes after which the swizzle repeats */
  PREFILL_COUNTERS = 3,           /* counters of the tile scheduler, zero before and after every launch */
  PREFILL_SLOTS_PER_BLOCK = 3,    /* parts of divided tiles, for each block of threads of the grid */
  PREFILL_MORE_SLOTS = 4,         /* and for what rounding adds */
  PREFILL_MOST_HEADS = 1 << 16,   /* most query heads: a tile's coordinates have 16 bits for one */
  PREFILL_MOST_BATCH = 1 << 16 /* most sequences: likewise; each block of threads keeps their order in global memory */
};

#endif
