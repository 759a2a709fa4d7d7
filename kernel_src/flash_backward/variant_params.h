/* The argument of the flash_backward kernels of an attention variant, by value. Read by the C compiler and by NVRTC. */
#ifndef KJIT_KERNEL_SRC_FLASH_BACKWARD_VARIANT_PARAMS_H
#define KJIT_KERNEL_SRC_FLASH_BACKWARD_VARIANT_PARAMS_H

#include "attention_variant/params.h"
#include "flash_backward/params.h"

struct flash_backward_variant_params {
  struct flash_backward_params base;
  struct attention_variant_params variant;                                 /* its lists, map and sinks are not read */
  struct kjit_variant_tensor_argument gradients[KJIT_VARIANT_TENSORS_MAX]; /* of the variant's tensors, fp32, added to;
                                                                              data NULL: not wanted. Read by READ */
};

#endif
