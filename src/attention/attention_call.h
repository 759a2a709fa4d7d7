/* One call of attention, of whichever family: from arguments as the caller gives them to all that a launch takes. */
#ifndef KJIT_ATTENTION_ATTENTION_CALL_H
#define KJIT_ATTENTION_ATTENTION_CALL_H

#include <stdbool.h>

#include "attention/attention_choose.h"
#include "attention/attention_empty.h"
#include "attention/attention_variant_launch.h"
#include "attention/decode/decode_call.h"
#include "attention/flash/flash_call.h"
#include "attention/serving_sm90/one_part_call.h"
#include "attention/short/short_call.h"
#include "attention/sm90/sm90_call.h"

struct attention_call {
  struct { /* all that a dense call needs, so that it can be kept without the rest */
    const struct attention_family *family;
    int32_t device; /* the current device, which the call is for */
    bool is_variant;
    union {
      struct one_part_call one_part;
      struct decode_call decode;
      struct short_call few;
      struct sm90_call sm90;
      struct flash_call flash;
      struct empty_call empty;
    } of; /* the family's own struct */
  };
  struct attention_variant_launch variant; /* where is_variant */
};

/* Check everything, choose a config if `config` is NULL, then find the kernel, or build and load it. `stream` is where
 * the call is enqueued next; NULL for a plan. Resets the error. */
kjit_status attention_call_prepare(struct attention_call *call, kjit_runtime *runtime, const kjit_config *config,
                                   const kjit_attention_args *args, const CUstream *stream, kjit_error *error);

kjit_status attention_call_enqueue(const struct attention_call *call, CUstream stream, kjit_error *error);

/* Choose for a checked problem: by the runtime's tuned table, then by the rules. */
kjit_status attention_call_choose(kjit_runtime *runtime, const kjit_attention_problem *problem,
                                  const kjit_device_info *device, struct attention_choice *out, kjit_error *error);

#endif
