/* One backward call, of whichever families: from arguments as the caller gives them to all that its launches take. */
#ifndef KJIT_ATTENTION_BACKWARD_BACKWARD_CALL_H
#define KJIT_ATTENTION_BACKWARD_BACKWARD_CALL_H

#include "attention/backward/backward_family.h"
#include "flash_backward/params.h"

/* One kernel of the call, ready to be enqueued. */
struct backward_launch {
  const struct config_kernel *kernel;
  uint32_t grid[3];
  union {
    struct flash_backward_params flash;
  } params; /* the kernel's one argument */
};

struct backward_call {
  int32_t device; /* the current device, which the call is for */
  uint32_t count;
  struct backward_launch launches[KJIT_ATTENTION_BACKWARD_KERNELS_MAX];
};

/* The kernels of a call, without their launches. */
struct backward_choice {
  uint32_t count;
  struct {
    const struct backward_family *family;
    int32_t values[BACKWARD_FIELDS_MAX];
  } kernels[KJIT_ATTENTION_BACKWARD_KERNELS_MAX];
};

/* Choose the kernels that together compute `gradients` (KJIT_GRADIENT_*), for a problem whose defaults are filled in.
 * KJIT_ERR_UNSUPPORTED says why no family computes one of them. Pure. */
kjit_status backward_choose(const kjit_attention_problem *problem, uint32_t gradients, const struct family_place *place,
                            struct backward_choice *out, kjit_error *error);

/* Check everything, choose configs if `configs` is NULL, then find the kernels, or build and load them. Resets the
 * error. */
kjit_status backward_call_prepare(struct backward_call *call, kjit_runtime *runtime, const kjit_config *configs,
                                  size_t count, const kjit_attention_backward_args *args, kjit_error *error);

kjit_status backward_call_enqueue(const struct backward_call *call, CUstream stream, kjit_error *error);

#endif
