/* The one argument of attention_serving_sm90 with one_part, by value: the few members that a call of few sequences
 * needs, in the order in which the kernel reads them, because each line of 64 bytes of the argument that is read for
 * the first time comes from memory. Read by the C compiler and by NVRTC. */
#ifndef KJIT_KERNEL_SRC_ATTENTION_SERVING_SM90_ONE_PART_PARAMS_H
#define KJIT_KERNEL_SRC_ATTENTION_SERVING_SM90_ONE_PART_PARAMS_H

#include "attention_serving_sm90/params.h"

/* K or V as the kernel with `gathered` reads them. Distances are in units of 16 bytes; the last row of the last page
 * begins fewer than 2^32 units behind the first. */
struct serving_rows {
  const void *data;
  unsigned page, seq, head; /* from one page, position and key head to the next */
};

struct attention_serving_one_part_params {
  struct serving_tensor_map k, v; /* params.h; boxes have box_rows positions */
  const int *used_k;              /* batch, or null: capacity */
  const int *page_table;          /* or null */
  long long page_table_stride;
  int max_pages;    /* columns of the page table */
  int batch;        /* sequences: 1 to 64 */
  int tiles;        /* of a sequence: heads_kv * row_tiles, those of a head side by side */
  int row_tiles;    /* that a head's rows_q * group rows make */
  int runs_of_tile; /* blocks of threads of the grid / tiles, >= 1 */
  int capacity;     /* positions of a row of the cache, or of the page table: less than 2^26 */
  int rows_new;     /* keys that every sequence appends; 0 */
  int appends;      /* this launch appends them, as `all` says */
  int rotates;      /* Q is rotated, as `all` says */
  int rows_q, group;
  int window_right; /* keys to the right of the diagonal that a row sees; -1: all */
  int box_rows;     /* divides KJIT_keys */
  int box_shift;    /* log2 of KJIT_keys / box_rows */
  int page_shift;   /* log2 of a page's positions */
  int cache_rows;   /* a page, or row of the cache, that does not exist */
  float scale_log2;
  int abreast_log2; /* with runs: log2 of the key heads that neighbouring blocks of threads have; they divide the heads
                       and the blocks of threads of the grid */
  const void *q;
  struct attention_serving_strides q_stride;
  float *partials;
  int *arrivals;
  void *o;
  struct attention_serving_strides o_stride;
  float *lse;
  long long lse_batch_stride, lse_head_stride;
  struct serving_rows k_rows, v_rows;  /* with `gathered`, in place of the maps and of box_rows and box_shift */
  struct attention_serving_params all; /* with K and V of 8 bits, and where there are new keys */
};

#endif
