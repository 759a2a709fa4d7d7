/* One call, from checked arguments to all that a launch takes. */
#ifndef KJIT_ATTENTION_SM90_CALL_H
#define KJIT_ATTENTION_SM90_CALL_H

#include <kjit/attention_sm90.h>

#include "attention_sm90/params.h"

struct sm90_tickets;

/* A kernel and what a launch of it must know. Never changes. */
struct sm90_kernel {
  kjit_kernel *kernel; /* the runtime's */
  uint32_t tile_m;
  uint32_t threads;
  uint32_t shared_bytes;
};

struct sm90_call {
  struct attention_sm90_params params; /* tickets: per launch */
  const struct sm90_kernel *kernel;
  struct sm90_tickets *tickets; /* NULL: the launch needs none */
  uint32_t blocks;
};

/* For a config that fits the arguments, on the device, which is current. Find the kernel, or build and load it. */
kjit_status sm90_call_prepare(struct sm90_call *call, kjit_runtime *runtime, const kjit_attention_sm90_config *config,
                              const kjit_attention_args *args, const kjit_attention_problem *problem,
                              const kjit_device_info *device, kjit_error *error);

kjit_status sm90_call_enqueue(const struct sm90_call *call, CUstream stream, kjit_error *error);

#endif
