/* The one argument of the flash_forward kernel, by value. Read by the C compiler and by NVRTC. */
#ifndef KJIT_KERNEL_SRC_FLASH_FORWARD_PARAMS_H
#define KJIT_KERNEL_SRC_FLASH_FORWARD_PARAMS_H

#include "attention_variant/params.h"

/* Element strides of one (batch, seq, heads, columns) tensor; its columns are contiguous. Multiples of 8. */
struct flash_forward_strides {
  long long batch;
  long long seq;
  long long head;
};

struct flash_forward_params {
  const void *q; /* (batch, seq_q,  heads_q,  head_dim) fp16 or bf16, 16-byte aligned */
  const void *k; /* (batch, seq_kv, heads_kv, head_dim)                               */
  const void *v; /* (batch, seq_kv, heads_kv, head_dim_v)                             */
  void *o;       /* (batch, seq_q,  heads_q,  head_dim_v)                             */
  float *lse;    /* (batch, heads_q, seq_q) natural log, or null                      */
  struct flash_forward_strides q_stride, k_stride, v_stride, o_stride;
  long long lse_batch_stride; /* elements */
  long long lse_head_stride;  /* elements */
  int seq_q;                  /* >= 1 */
  int seq_kv;                 /* >= 1 */
  float scale;                /* softmax scale                */
  float scale_log2;           /* the same times log2(e)       */
  int heads_per_kv;           /* query heads that share a key and value head; read where KJIT_grouped */
  int reserved;               /* zero: no padding         */
};

/* The argument in place of it where KJIT_variant is defined. With a score function of the variant's, base.scale is
 * ln(2) and base.scale_log2 is 1, because the scores are scaled before that function and are powers of 2 after it. */
struct flash_forward_variant_params {
  struct flash_forward_params base;
  struct attention_variant_params variant;
};

#endif
