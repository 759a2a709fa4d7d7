/* The one argument of the attention_sm90 kernel, by value. Read by the C compiler and by NVRTC. */
#ifndef KJIT_KERNEL_SRC_ATTENTION_SM90_PARAMS_H
#define KJIT_KERNEL_SRC_ATTENTION_SM90_PARAMS_H

#include "attention_variant/params.h"

/* The driver's CUtensorMap: 128 opaque bytes. */
#ifdef __CUDACC_RTC__
struct alignas(64) attention_tensor_map {
#else
struct attention_tensor_map {
  _Alignas(64)
#endif
  char bytes[128];
};

struct attention_sm90_params {
  /* Tensor maps over (head_dim, seq, heads, batch), innermost axis first, with the 128-byte swizzle. Boxes have 64
   * columns by 64 rows (q, o) or tile_n rows (k, v); what lies outside reads as zero. With packed > 1, q and o are over
   * (head_dim, query heads that share a key head, seq, key heads, batch), in boxes of 64 x packed x 64 / packed. */
  struct attention_tensor_map q, k, v, o;
  float *lse;                 /* (batch, heads_q, seq_q) natural log, or null                                       */
  long long lse_batch_stride; /* elements */
  long long lse_head_stride;  /* elements */
  int *tickets;               /* tile-scheduler counters, both zero; NULL when tiles are dealt out beforehand */
  int batch;
  int heads;        /* heads as tiles count them: query heads, or packs of up to `packed` that share a key head */
  int heads_per_kv; /* heads, so counted, that share a key and value head */
  int seq_q;        /* >= 1 */
  int seq_kv;       /* >= 1 */
  int query_tiles;  /* ceil(seq_q / tile_m)                                                             */
  int section;      /* L2 section: (batch, head) pairs whose K and V fit L2 together */
  float scale;      /* softmax scale, above 0 */
  float scale_log2; /* scale * log2(e) */
  int group;        /* query heads that share a key and value head                                           */
  int splits; /* most splits of a tile (split-KV): 1 to 256, and no more than the longest tile has key blocks; 1 when
                 there is no memory for partial results */
  int partial_rows; /* rows of a consumer's 64 that a partial result keeps: a multiple of 8 */
  float *partials;  /* [tiles][consumers][splits] partial results, as partials.cuh lays them out */
  int *arrivals;    /* [tiles][consumers][splits] counters, all zero before and after a launch */
};

/* The argument in place of it where KJIT_variant is defined. With a score function of the variant's, base.scale is
 * ln(2) and base.scale_log2 is 1, because the scores are scaled before that function and are powers of 2 after it. */
struct attention_sm90_variant_params {
  struct attention_sm90_params base;
  struct attention_variant_params variant;
  /* With KJIT_variant_pairs 3: the tensor with the variant's terms, the last axis, along the keys, first, in boxes of
   * 64 keys by 64 queries. An axis that the tensor does not have, or whose elements are all one, has one element. */
  struct attention_tensor_map terms;
};

#endif
