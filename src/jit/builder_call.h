/* One builder_get() under way: what is asked for, and until when. */
#ifndef KJIT_JIT_BUILDER_CALL_H
#define KJIT_JIT_BUILDER_CALL_H

#include "jit/builder_internal.h"

struct builder_call {
  struct builder *builder;
  const struct jit_request *request;
  const char *compiler;      /* NULL: unknown */
  struct digest identity;    /* of the two */
  struct key *key;           /* made when memory does not have it; NULL until then */
  int64_t deadline_ns;       /* INT64_MAX: none */
  const atomic_bool *ending; /* of a call that no caller waits for: true when it is to end; NULL for any other */
  kjit_error refusal;        /* why a bundle that has the kernel did not answer; status 0 when none was refused */
};

/* May it end before it has its answer? */
static inline _Bool builder_call_may_end(const struct builder_call *call) {
  return call->deadline_ns != INT64_MAX || call->request->stop || call->ending;
}

/* Is it over: has its time passed, or does its caller cancel? A compile_stop. */
_Bool builder_call_is_over(void *call);

/* The status and the sentence of a call that is over; `what` was going on. */
kjit_status builder_call_end(const struct builder_call *call, const char *what, kjit_error *error);

#endif
