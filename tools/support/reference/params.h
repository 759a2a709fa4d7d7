/* Arguments of the checking kernels, each one struct by value. Read by the C compiler and by NVRTC. */
#ifndef KJIT_TESTS_GPU_REFERENCE_PARAMS_H
#define KJIT_TESTS_GPU_REFERENCE_PARAMS_H

/* A (batch, seq, heads, head_dim) tensor of 16-bit elements. */
struct check_view {
  void *data;
  long long stride[4]; /* elements */
};

/* attention_reference.cu */
struct attention_reference_params {
  struct check_view q, k, v;
  void *o;     /* (batch, seq_q, heads, head_dim_v) contiguous: double, or 16-bit elements in the 16-bit variant */
  double *lse; /* (batch, heads, seq_q) contiguous, or null; not written by the 16-bit variant                 */
  double scale;
  int heads;        /* of q and o                         */
  int heads_per_kv; /* query heads that share a key head  */
  int seq_q;
  int seq_kv;
  int head_dim;   /* of q and k, at most 256 */
  int head_dim_v; /* of v and o, at most 256 */
  int causal;     /* row i sees keys up to i + seq_kv - seq_q */
  int is_bf16;
};

/* attention_gradients.cu */
struct attention_gradients_params {
  struct check_view q, k, v, dout;
  const float *dlse;   /* (batch, heads, seq_q) contiguous, or null */
  void *probabilities; /* (batch, heads, seq_q, seq_kv): double, or float in the 16-bit variant; written by stage 0 */
  void *derivatives;   /* dS, the same                                                                              */
  void *out;           /* contiguous, of the shape of q, k or v: double, or 16-bit elements in the 16-bit variant   */
  double scale;
  int stage;        /* 0 to 3: P and dS, dq, dk, dv        */
  int heads;        /* of q and o                          */
  int heads_per_kv; /* query heads that share a key head   */
  int seq_q;
  int seq_kv;
  int head_dim;
  int head_dim_v;
  int causal; /* row i sees keys up to i + seq_kv - seq_q */
  int is_bf16;
};

/* attention_compare.cu. All zero before the launch. */
struct attention_compare_result {
  unsigned long long worst;            /* largest |out - ref| as float bits << 32 | ~index, index linear as in ref */
  unsigned long long error16;          /* largest |ref16 - ref|, float bits                                        */
  unsigned long long largest;          /* largest |ref|, float bits                                                */
  unsigned long long not_finite;       /* elements of out that are infinite or NaN                         */
  unsigned long long first_not_finite; /* ~index of the first of them                                      */
};

struct attention_compare_params {
  struct check_view out;
  const double *ref;           /* (batch, seq_q, heads, head_dim) contiguous */
  const unsigned short *ref16; /* the same shape                             */
  struct attention_compare_result *result;
  long long shape[4];
  int is_bf16;
};

/* fill_normal.cu: shape 1 on an axis whose stride is 0. */
struct fill_normal_params {
  struct check_view out;
  long long shape[4];
  unsigned long long seed;
  int is_bf16;
};

/* census.cu. All zero before the launch. */
struct census_result {
  unsigned long long poisoned; /* words that are equal to the poison                */
  unsigned long long digest;   /* of all words and their places: changes with any   */
};

struct census_params {
  const void *memory;
  unsigned long long words;
  struct census_result *result;
  unsigned int poison;
  int word_bytes; /* 2 or 4 */
};

#endif
