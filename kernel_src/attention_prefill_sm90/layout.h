/* Sizes from which the host computes a launch's memory and by which the attention_prefill_sm90 kernel lays it out, read
 * by the C compiler and by NVRTC. What this kernel adds to attention_sm90's shared memory (tile.cuh) lies behind it. */
#ifndef KJIT_KERNEL_SRC_ATTENTION_PREFILL_SM90_LAYOUT_H
#define KJIT_KERNEL_SRC_ATTENTION_PREFILL_SM90_LAYOUT_H

enum {
  PREFILL_TILE_BYTES = 32,     /* a tile's coordinates, for each Q buffer */
  PREFILL_COUNTERS = 2,        /* counters of the tile scheduler, zero before and after every launch */
  PREFILL_MOST_BATCH = 1 << 16 /* most sequences: each block of threads keeps their order in global memory */
};

#endif
