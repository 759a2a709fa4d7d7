/* The one argument of the attention_short_sm90 kernel, by value. Read by the C compiler and by NVRTC. */
#ifndef KJIT_KERNEL_SRC_ATTENTION_SHORT_SM90_PARAMS_H
#define KJIT_KERNEL_SRC_ATTENTION_SHORT_SM90_PARAMS_H

#include "attention_sm90/params.h"

struct attention_short_sm90_params {
  /* Tensor maps over (head_dim, seq, heads, batch), innermost axis first, with the 128-byte swizzle. Boxes have 64
   * columns by 64 rows (q, o) or tile_n rows (k, v); what lies outside reads as zero. */
  struct attention_tensor_map q, k, v, o;
  float *lse;                 /* (batch, heads_q, seq_q) natural log, or null */
  long long lse_batch_stride; /* elements */
  long long lse_head_stride;  /* elements */
  int heads_kv;
  int group;       /* query heads that share a key and value head */
  int seq_q;       /* >= 1 */
  int seq_kv;      /* 1 to tile_n */
  int query_tiles; /* of a query head: ceil(seq_q / 64) */
  int whole_heads; /* 1: a run is whole key heads, as many apart as there are blocks; 0: neighbouring tiles */
  int run_length;  /* of a block of threads, in key heads or tiles; the first run_rest blocks have one more */
  int run_rest;
  int step_batches; /* from a key head of a run to its next: so many batch entries, */
  int step_heads;   /* and so many key heads, below heads_kv */
  float scale;      /* softmax scale, above 0 */
  float scale_log2; /* scale * log2(e) */
};

#endif
