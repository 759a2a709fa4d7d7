/* What an attention variant's printed functions read: lengths, the scalars by their bits, and the tensors where they
 * lie. Part of a kernel's one argument, read by the C compiler and by NVRTC. */
#ifndef KJIT_KERNEL_SRC_KJIT_ATTENTION_VARIANT_ARGUMENTS_H
#define KJIT_KERNEL_SRC_KJIT_ATTENTION_VARIANT_ARGUMENTS_H

struct kjit_variant_tensor_argument {
  const void *data;
  int size[4];         /* elements, outermost first; 1 beyond the rank */
  long long stride[4]; /* elements; 0 beyond the rank */
};

struct kjit_variant_arguments {
  int seq_q, seq_kv, heads_q, heads_kv;
  unsigned int scalars[32];
  struct kjit_variant_tensor_argument tensors[8];
};

#endif
