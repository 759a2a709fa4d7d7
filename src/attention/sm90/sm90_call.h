/* One call, from checked arguments to all that a launch takes. */
#ifndef KJIT_ATTENTION_SM90_SM90_CALL_H
#define KJIT_ATTENTION_SM90_SM90_CALL_H

#include <kjit/attention_sm90.h>

#include "attention_sm90/params.h"

struct sm90_tickets;
struct sm90_workspace;

/* A kernel and what a launch of it must know. Never changes. */
struct sm90_kernel {
  kjit_kernel *kernel; /* the runtime's */
  uint32_t threads;
  uint32_t shared_bytes;
};

struct sm90_call {
  struct attention_sm90_params params; /* whole but for what is a stream's own */
  const struct sm90_kernel *kernel;
  struct sm90_tickets *tickets;     /* NULL: the launch needs none */
  struct sm90_workspace *workspace; /* NULL: no tile is split      */
  size_t partial_bytes, arrivals;   /* of the workspace            */
  uint32_t multiprocessors;
  uint32_t tiles;
  uint32_t parts; /* of a tile, with a workspace */
};

/* In how many parts a config's tiles are worked on. Some hundred nanoseconds, if they may be split. */
uint32_t sm90_call_parts(const kjit_attention_problem *problem, const kjit_attention_sm90_config *config,
                         uint32_t multiprocessors);

/* For a config that fits the arguments, on the device, which is current. Find the kernel, or build and load it. */
kjit_status sm90_call_prepare(struct sm90_call *call, kjit_runtime *runtime, const kjit_attention_sm90_config *config,
                              uint32_t parts, const kjit_attention_args *args, const kjit_attention_problem *problem,
                              const kjit_device_info *device, kjit_error *error);

kjit_status sm90_call_enqueue(const struct sm90_call *call, CUstream stream, kjit_error *error);

#endif
