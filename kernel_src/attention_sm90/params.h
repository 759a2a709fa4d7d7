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
   * 64 rows (q, o) or tile_n rows (k, v); zeros outside. With packed > 1, q and o are over (head_dim, query heads that
   * share a key head, seq, key heads, batch), boxes of 64 x packed x 64 / packed. */
  struct attention_tensor_map q, k, v, o;
  float *lse;                 /* (batch, heads_q, seq_q) natural log, or null                                       */
  long long lse_batch_stride; /* elements */
  long long lse_head_stride;  /* elements */
  int *tickets;               /* two zeros for handing out tiles as blocks get free; null: dealt out beforehand      */
  int batch;
  int heads;        /* that tiles are made of: query heads, or parts of up to `packed` that share a key head */
  int heads_per_kv; /* those of them that share a key and value head                                         */
  int seq_q;        /* >= 1 */
  int seq_kv;       /* >= 1 */
  int query_tiles;  /* ceil(seq_q / tile_m)                                                             */
  int section;      /* (batch, head) pairs whose K and V are worked on together, so that they stay in L2 */
  float scale;      /* softmax scale, > 0    */
  float scale_log2; /* the same times log2 e */
  int group;        /* query heads that share a key and value head                                           */
  int splits;       /* parts that a tile's key blocks are shared out in: 1 to 256, and no more than the longest tile has
                     * key blocks; 1 without the memory below                                                */
  int partial_rows; /* of a consumer's 64 that are kept of a part's result: a multiple of 8                   */
  float *partials;  /* [tiles][consumers][splits] places: partials.cuh                                        */
  int *arrivals;    /* [tiles][consumers][splits], zeros; the kernel leaves zeros                             */
};

#endif
