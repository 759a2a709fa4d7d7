/* The one argument of the attention_sm90 kernel, by value. Read by the C compiler and by NVRTC. */
#ifndef KJIT_KERNEL_SRC_ATTENTION_SM90_PARAMS_H
#define KJIT_KERNEL_SRC_ATTENTION_SM90_PARAMS_H

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
  /* Maps over (head_dim, seq, heads, batch), innermost first; 128-byte swizzle; boxes of 64 columns by
   * 64 rows (q, o) or tile_n rows (k, v); zeros outside. */
  struct attention_tensor_map q, k, v, o;
  float *lse;                 /* (batch, heads_q, seq_q) natural log, or null                                       */
  long long lse_batch_stride; /* elements */
  long long lse_head_stride;  /* elements */
  int *tickets;               /* two zeros for handing out tiles as blocks get free; null: dealt out beforehand      */
  int batch;
  int heads_q;
  int heads_per_kv; /* query heads that share a key and value head */
  int seq_q;        /* >= 1 */
  int seq_kv;       /* >= 1 */
  int query_tiles;  /* ceil(seq_q / tile_m)                                                             */
  int section;      /* (batch, head) pairs whose K and V are worked on together, so that they stay in L2 */
  float scale;      /* softmax scale, > 0    */
  float scale_log2; /* the same times log2 e */
};

#endif
