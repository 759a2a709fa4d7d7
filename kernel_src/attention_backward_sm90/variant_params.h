/* The argument of the attention_backward_sm90 kernels of an attention variant, by value. Read by the C compiler and by
 * NVRTC. */
#ifndef KJIT_KERNEL_SRC_ATTENTION_BACKWARD_SM90_VARIANT_PARAMS_H
#define KJIT_KERNEL_SRC_ATTENTION_BACKWARD_SM90_VARIANT_PARAMS_H

#include "attention_backward_sm90/params.h"
#include "attention_variant/params.h"

struct attention_backward_sm90_variant_params {
  struct attention_backward_sm90_params base;
  struct attention_variant_params variant; /* its lists, map and sinks are not read */
};

#endif
