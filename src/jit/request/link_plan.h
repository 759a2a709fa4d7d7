/* What has to be done to make a request's machine code: compile, link, or both. Follows from the request alone. */
#ifndef KJIT_JIT_REQUEST_LINK_PLAN_H
#define KJIT_JIT_REQUEST_LINK_PLAN_H

#include <stdbool.h>

#include "jit/request/request.h"

struct link_plan {
  bool compiles;           /* there is a source */
  bool links;              /* the compiler's output, the parts or both go through the linker */
  bool lto;                /* with link-time optimisation: some input is LTO-IR */
  uint32_t output;         /* a kjit_part_kind: what the compiler gives; KJIT_PART_CUBIN also for the relocatable one */
  const char *unit_option; /* what the compiler must be told beside the request's options, so that its output can be
                              linked with the parts; NULL: nothing */
};

struct link_plan link_plan_of(const struct jit_request *request);

#endif
