/* The one argument of the attention_serving_sm90 kernel, by value. Read by the C compiler and by NVRTC. */
#ifndef KJIT_KERNEL_SRC_ATTENTION_SERVING_SM90_PARAMS_H
#define KJIT_KERNEL_SRC_ATTENTION_SERVING_SM90_PARAMS_H

#include "attention_serving/params.h"

/* The driver's CUtensorMap: 128 opaque bytes. */
#ifdef __CUDACC_RTC__
struct alignas(64) serving_tensor_map {
#else
struct serving_tensor_map {
  _Alignas(64)
#endif
  char bytes[128];
};

struct attention_serving_sm90_params {
  /* Tensor maps over (columns, positions, key heads, rows of the cache or pages), innermost axis first, with the
   * 128-byte swizzle; boxes have 128 bytes of columns by box_rows positions, or with heads of up to 64 columns of 8
   * bits 64 bytes and the 64-byte swizzle. What lies outside reads as zero. Where the keys of all sequences follow one
   * another, the last axis has length 1. */
  struct serving_tensor_map k, v;
  struct attention_serving_params serving;
  int box_rows; /* of a box of K or V: a multiple of 8 that divides `keys` and, with pages, page_size */
};

#endif
