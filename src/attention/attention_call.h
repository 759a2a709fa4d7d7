/* One call, of whichever family. */
#ifndef KJIT_ATTENTION_ATTENTION_CALL_H
#define KJIT_ATTENTION_ATTENTION_CALL_H

#include "attention/attention_choose.h"
#include "attention/flash/flash_call.h"
#include "attention/sm90/sm90_call.h"

struct attention_call {
  enum attention_family family;
  int32_t device; /* that is current, and that it is for */
  union {
    struct sm90_call sm90;
    struct flash_call flash;
  };
};

/* Check everything, choose, then find the kernel, or build and load it. `config` NULL: a family and config are chosen;
 * else attention_sm90 with this one. Resets the error. */
kjit_status attention_call_prepare(struct attention_call *call, kjit_runtime *runtime,
                                   const kjit_attention_sm90_config *config, const kjit_attention_args *args,
                                   kjit_error *error);

kjit_status attention_call_enqueue(const struct attention_call *call, CUstream stream, kjit_error *error);

#endif
