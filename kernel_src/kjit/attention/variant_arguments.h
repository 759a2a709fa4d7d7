/* What the functions of an attention variant read at a launch: the problem's sizes, numbers, and the tensors that the
 * variant names. Part of a kernel's arguments, by value. Read by the C compiler and by NVRTC.
 *
 * A scalar is an int32 or the bits of a float; which of the two, the variant's text says. The declared scalars come
 * first, in their order, behind them the numbers that the text is written with. */
#ifndef KJIT_KERNEL_SRC_KJIT_ATTENTION_VARIANT_ARGUMENTS_H
#define KJIT_KERNEL_SRC_KJIT_ATTENTION_VARIANT_ARGUMENTS_H

#define KJIT_VARIANT_SCALARS_MAX 32
#define KJIT_VARIANT_TENSORS_MAX 8

/* Sizes and strides count elements. Axes behind the rank have size 1 and stride 0. Every size is at least 1. */
struct kjit_variant_tensor_argument {
  const void *data;
  int size[4];
  long long stride[4];
};

struct kjit_variant_arguments {
  int seq_q, seq_kv, heads_q, heads_kv;
  unsigned scalars[KJIT_VARIANT_SCALARS_MAX];
  struct kjit_variant_tensor_argument tensors[KJIT_VARIANT_TENSORS_MAX];
};

#ifdef __cplusplus
using kjit_variant_arguments = struct kjit_variant_arguments;
#endif

#endif
