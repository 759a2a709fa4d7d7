/* The one argument of the flash_forward kernel, by value. Read by the C compiler and by NVRTC. */
#ifndef KJIT_KERNEL_SRC_FLASH_FORWARD_PARAMS_H
#define KJIT_KERNEL_SRC_FLASH_FORWARD_PARAMS_H

/* Element strides of one (batch, seq, heads, d_head) tensor; d_head itself is contiguous. Multiples of 8. */
struct flash_forward_strides {
  long long batch;
  long long seq;
  long long head;
};

struct flash_forward_params {
  const void *q; /* (batch, seq_q,  heads, d_head) fp16 or bf16, 16-byte aligned */
  const void *k; /* (batch, seq_kv, heads, d_head)                               */
  const void *v; /* (batch, seq_kv, heads, d_head)                               */
  void *o;       /* (batch, seq_q,  heads, d_head)                               */
  float *lse;    /* (batch, heads, seq_q) natural log, or null                   */
  struct flash_forward_strides q_stride, k_stride, v_stride, o_stride;
  long long lse_batch_stride; /* elements */
  long long lse_head_stride;  /* elements */
  int seq_q;                  /* >= 1 */
  int seq_kv;                 /* >= 1 */
  float scale;                /* softmax scale                */
  float scale_log2;           /* the same times log2(e)       */
};

#endif
