/* The one argument of the attention_backward_sm90 kernels, by value. Read by the C compiler and by NVRTC. */
#ifndef KJIT_KERNEL_SRC_ATTENTION_BACKWARD_SM90_PARAMS_H
#define KJIT_KERNEL_SRC_ATTENTION_BACKWARD_SM90_PARAMS_H

#include "flash_backward/params.h"

/* A CUtensorMap. */
#ifdef __CUDACC_RTC__
struct alignas(64) attention_backward_map {
#else
struct attention_backward_map {
  _Alignas(64)
#endif
  char bytes[128];
};

/* A block owns rows of queries (pass dq) or of keys (dk, dv) and steps over the rows of the other side. Each tensor is
 * (batch, seq, heads, columns), a box 64 columns wide and one tile, or 64 own rows, high. */
struct attention_backward_sm90_params {
  struct attention_backward_map own;        /* head_dim columns: q for dq, k for dk and dv      */
  struct attention_backward_map own_value;  /* head_dim_v columns: dout for dq, v for dk and dv */
  struct attention_backward_map step;       /* head_dim columns: k for dq, q for dk and dv      */
  struct attention_backward_map step_value; /* head_dim_v columns: v for dq, dout for dk and dv */
  struct attention_backward_map out;        /* dq or dk; unused where neither is computed       */
  struct attention_backward_map out_value;  /* dv; unused where it is not computed              */
  struct flash_backward_params rest;        /* pointers, strides, lengths and scale             */

  /* Where dq is summed (passes 7, 8 and 16): for each batch, query head and 64 queries a tile of fp32 sums, in the
   * order of wgmma's accumulators (sums.cuh); and two counters for each such tile, by which key tiles take turns. */
  float *sums;
  int *turns;      /* pass 7: null where sums may be added in any order */
  int *states;     /* pass 7 with `stores`, in any order: for each tile 0 untouched, 1 being stored, 2 there */
  int row_blocks;  /* tiles of a batch and head */
  int zero_blocks; /* pass 8 with `stores`: the first tiles, which no tile of keys may store */
  int section;     /* so many heads are worked on together; pass 16: so many come last: schedule.cuh */
  int *next_tile;  /* passes 7 and 8: how many tiles persistent blocks have taken; without turns but the first */
  int *done;       /* for each batch entry and key head: parts that are in the sums, two a tile of keys */
  int parts;       /* pass 16: how many parts a key head has */
  int reserved;    /* zero: no padding */
  /* Pass 7 with `stores`: 2^32 times how far apart two neighbouring tiles of keys begin, in steps, or causal in parts
   * of a tile's steps; 0 where all begin with their first step. */
  unsigned long long spread;
  unsigned int grid[3]; /* pass 7, persistent: tiles of a head, heads, batch entries */
};

#endif
