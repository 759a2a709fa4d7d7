/* The one argument of the attention_prefill_sm90 kernel, by value. Read by the C compiler and by NVRTC. */
#ifndef KJIT_KERNEL_SRC_ATTENTION_PREFILL_SM90_PARAMS_H
#define KJIT_KERNEL_SRC_ATTENTION_PREFILL_SM90_PARAMS_H

#include "attention_serving/params.h"
#include "attention_sm90/params.h"

struct attention_prefill_params {
  /* What the headers of attention_sm90 read: the maps of q, k and v; heads, heads_per_kv and group; scale and
   * scale_log2, which with a softcap are those of the capped scores, 1 and log2(e). Tensors whose rows follow one
   * another have a batch of 1; pages are the batch of k and v. K and V have boxes of `box_rows` rows. */
  struct attention_sm90_params base;
  struct attention_serving_params serving; /* `arrivals` holds the counters */
  int *order;                              /* `batch` numbers of sequences for each block of threads */
  float *slots;                            /* PREFILL_SLOTS_PER_BLOCK * blocks of threads + PREFILL_MORE_SLOTS parts */
  int box_rows;                            /* rows of a box of K or V: divides tile_n and, with pages, page_size */
  int key_bands, value_bands;              /* bands of 64 columns from a head of K, of V, to the next */
  int l2_keys;                             /* keys of one head whose K and V together fit L2: at least 1 */
};

#endif
