/* One builder_get() under way: what is asked for, and until when. */
#ifndef KJIT_JIT_BUILDER_CALL_H
#define KJIT_JIT_BUILDER_CALL_H

#include <stdbool.h>

#include "jit/builder_internal.h"

struct builder_call {
  struct builder *builder;
  const struct jit_request *request;
  const char *compiler;   /* identity of NVRTC; NULL when unknown */
  struct digest identity; /* digest of request and compiler */
  struct key *key;        /* made when memory does not have it; NULL until then */
  int64_t deadline_ns;    /* INT64_MAX: none */
  struct flight *flight;  /* of a call in the background until it has landed: the call ends when nobody wants the
                           * flight; NULL for any other */
  kjit_error refusal;     /* why a bundle that has the kernel did not answer; status 0 when none was refused */
};

/* Can the call end before it has its answer? */
static inline bool builder_call_may_end(const struct builder_call *call) {
  return call->deadline_ns != INT64_MAX || call->request->stop || call->flight;
}

/* True when the call's time has passed, its caller cancels or the builder is to end. It has the form of a compile_stop.
 */
bool builder_call_is_over(void *call);

/* Fill in the error of a call that is over: KJIT_ERR_TIMEOUT or KJIT_ERR_CANCELLED. `what` says what was going on. */
kjit_status builder_call_end(const struct builder_call *call, const char *what, kjit_error *error);

#endif
