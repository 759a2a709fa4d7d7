/* One backward call, of whichever families: from arguments as the caller gives them to all that its launches take. */
#ifndef KJIT_ATTENTION_BACKWARD_BACKWARD_CALL_H
#define KJIT_ATTENTION_BACKWARD_BACKWARD_CALL_H

#include <stdbool.h>

#include "attention/attention_variant_launch.h"
#include "attention/backward/backward_family.h"
#include "attention_backward_sm90/variant_params.h"
#include "flash_backward/variant_params.h"

/* One kernel of the call, ready to be enqueued. */
struct backward_launch {
  const struct config_kernel *kernel;
  uint32_t grid[3];
  bool is_dependent; /* it may begin before the call's launch in front of it has ended */
  /* The device memory that it shares with the call's other launches: sums, a counter for each turn, and others. */
  size_t sum_bytes, turns, counters;
  void (*place)(struct backward_launch *launch, float *sums, int *turns); /* where that is; NULL: it needs none */
  union {
    struct attention_backward_sm90_params sm90;
    struct attention_backward_sm90_variant_params sm90_variant; /* begins with `sm90` */
    struct flash_backward_params flash;
    struct flash_backward_variant_params flash_variant; /* begins with `flash` */
  } params;                                             /* the kernel's one argument */
};

struct stream_workspace;

struct backward_call {
  int32_t device; /* the current device, which the call is for */
  uint32_t count;
  struct stream_workspace *workspace; /* where launches find the memory that they share */
  struct backward_launch launches[KJIT_ATTENTION_BACKWARD_KERNELS_MAX];
};

/* Fill in the argument of flash_backward's kernels, which is a part of every family's, from checked arguments. */
void backward_fill(const kjit_attention_backward_args *args, const kjit_attention_problem *problem,
                   struct flash_backward_params *params);

/* The kernels of a call, without their launches. */
struct backward_choice {
  uint32_t count;
  struct {
    const struct backward_family *family;
    int32_t values[BACKWARD_FIELDS_MAX];
  } kernels[KJIT_ATTENTION_BACKWARD_KERNELS_MAX];
};

/* Choose the kernels that together compute what is wanted. KJIT_ERR_UNSUPPORTED says why no family computes one of the
 * gradients. The problem's flags may have KJIT_ATTENTION_DETERMINISTIC. Pure. */
kjit_status backward_choose(const struct backward_wanted *wanted, const struct family_place *place,
                            struct backward_choice *out, kjit_error *error);

/* Check everything, choose configs if `configs` is NULL, then find the kernels, or build and load them. Resets the
 * error. */
kjit_status backward_call_prepare(struct backward_call *call, kjit_runtime *runtime, const kjit_config *configs,
                                  size_t count, const kjit_attention_backward_args *args, kjit_error *error);

kjit_status backward_call_enqueue(const struct backward_call *call, CUstream stream, kjit_error *error);

#endif
