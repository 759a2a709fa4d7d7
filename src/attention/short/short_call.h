/* One call of attention_short_sm90, from checked arguments to all that a launch takes. */
#ifndef KJIT_ATTENTION_SHORT_SHORT_CALL_H
#define KJIT_ATTENTION_SHORT_SHORT_CALL_H

#include "attention/attention_family.h"
#include "attention/short/short_config.h"
#include "attention_short_sm90/params.h"

struct short_call {
  struct attention_short_sm90_params params; /* complete */
  const struct config_kernel *kernel;
  uint32_t blocks; /* of the grid */
};

extern const struct attention_family short_attention;

#endif
