/* The one argument of the flash_backward kernels, by value, the same for all passes. Read by the C compiler and by
 * NVRTC. */
#ifndef KJIT_KERNEL_SRC_FLASH_BACKWARD_PARAMS_H
#define KJIT_KERNEL_SRC_FLASH_BACKWARD_PARAMS_H

/* Bits of the field `pass`: the gradients that a kernel computes. */
#define FLASH_BACKWARD_DQ    1
#define FLASH_BACKWARD_DK    2
#define FLASH_BACKWARD_DV    4
#define FLASH_BACKWARD_DELTA 8  /* delta alone, where no kernel computes dq */
#define FLASH_BACKWARD_READ  64 /* of what a variant's score function reads, and delta on the way */

/* Element strides of one (batch, seq, heads, columns) tensor; its columns are contiguous. Multiples of 8. */
struct flash_backward_strides {
  long long batch;
  long long seq;
  long long head;
};

/* Element strides of one (batch, heads, seq_q) fp32 tensor; its rows are contiguous. */
struct flash_backward_row_strides {
  long long batch;
  long long head;
};

struct flash_backward_params {
  const void *q;     /* (batch, seq_q,  heads_q,  head_dim) fp16 or bf16, 16-byte aligned */
  const void *k;     /* (batch, seq_kv, heads_kv, head_dim)                               */
  const void *v;     /* (batch, seq_kv, heads_kv, head_dim_v)                             */
  const void *o;     /* (batch, seq_q,  heads_q,  head_dim_v): the forward's result       */
  const void *dout;  /* (batch, seq_q,  heads_q,  head_dim_v): the gradient of o          */
  void *dq;          /* as q */
  void *dk;          /* as k */
  void *dv;          /* as v */
  const float *lse;  /* (batch, heads_q, seq_q) natural log: the forward's result */
  const float *dlse; /* the same shape: the gradient of lse, or null              */
  float *delta;      /* the same shape: written by DQ and DELTA, read by DK       */
  struct flash_backward_strides q_stride, k_stride, v_stride, o_stride, dout_stride, dq_stride, dk_stride, dv_stride;
  struct flash_backward_row_strides lse_stride, dlse_stride, delta_stride;
  int seq_q;        /* >= 1 */
  int seq_kv;       /* >= 1 */
  float scale;      /* softmax scale              */
  float scale_log2; /* the same times log2(e)     */
  int heads_per_kv; /* query heads that share a key and value head */
  int reserved;     /* zero: no padding           */
};

#endif
