/* The one argument of the attention_decode_sm90 kernel, by value. Read by the C compiler and by NVRTC. */
#ifndef KJIT_KERNEL_SRC_ATTENTION_DECODE_SM90_PARAMS_H
#define KJIT_KERNEL_SRC_ATTENTION_DECODE_SM90_PARAMS_H

/* The driver's CUtensorMap: 128 opaque bytes. */
#ifdef __CUDACC_RTC__
struct alignas(64) decode_tensor_map {
#else
struct decode_tensor_map {
  _Alignas(64)
#endif
  char bytes[128];
};

struct attention_decode_sm90_params {
  /* Tensor maps over (head_dim, seq_kv, heads_kv, batch), innermost axis first, with the 128-byte swizzle; boxes have
   * 64 columns by tile_n rows. What lies outside reads as zero. */
  struct decode_tensor_map k, v;
  const void *q; /* 16-bit elements; rows of head_dim neighbours, 16-byte aligned */
  void *o;       /* likewise, head_dim_v                                          */
  float *lse;    /* (batch, heads_q, seq_q) natural log, or null                  */
  long long q_batch_stride, q_seq_stride, q_head_stride; /* elements */
  long long o_batch_stride, o_seq_stride, o_head_stride;
  long long lse_batch_stride, lse_head_stride;
  int heads_kv;
  int group;     /* query heads that share a key and value head */
  int seq_q;     /* >= 1; row r of a head's seq_q * group rows: query r / group, head r % group of the group */
  int seq_kv;    /* >= 1 */
  int row_tiles; /* ceil(seq_q * group / rows) */
  int runs;      /* blocks of the grid; at most 65,535, unless run_rest is 0 */
  int run_blocks, run_rest; /* the key blocks of all tiles, divided by runs: quotient and remainder */
  float runs_per_block;     /* runs divided by the key blocks of all tiles */
  float scale;              /* softmax scale, above 0 */
  float scale_log2;         /* scale * log2(e) */
  float *partials;          /* [2 * runs] partial results, as merge.cuh lays them out; null when no tile crosses runs */
  int *merge_counters;      /* [tiles][4] counters (merge.cuh), all zero before and after a launch */
};

#endif
