/* When a call is over, because its time has passed, its caller cancels or the builder ends, and which error says so.
 * Asked by whichever thread works for the call. */
#include "jit/builder_call.h"

#include "base/error.h"

bool builder_call_is_over(void *user) {
  const struct builder_call *call = user;
  const struct jit_request *request = call->request;
  if (atomic_load(&call->builder->ending)) return true;
  if (call->flight && !resident_is_wanted(call->builder->resident, call->flight)) return true;
  return builder_now_ns(call->builder) >= call->deadline_ns || (request->stop && request->stop(request->stop_user));
}

kjit_status builder_call_end(const struct builder_call *call, const char *what, kjit_error *error) {
  const struct jit_request *request = call->request;
  if (builder_now_ns(call->builder) >= call->deadline_ns)
    return error_set(error, KJIT_ERR_TIMEOUT, "kernel %s for %s: %s after %u ms", request->entry, request->target.name,
                     what, request->timeout_ms);
  if (atomic_load(&call->builder->ending))
    return error_set(error, KJIT_ERR_CANCELLED, "kernel %s for %s: %s, and the runtime was cancelled", request->entry,
                     request->target.name, what);
  return error_set(error, KJIT_ERR_CANCELLED, "kernel %s for %s: %s, and the caller cancelled", request->entry,
                   request->target.name, what);
}
