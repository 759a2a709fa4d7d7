/* Launching: once, or timed; with a config of attention_sm90 or the chosen one. */
#include "attention/attention_call.h"
#include "base/error.h"
#include "runtime/runtime_internal.h"

static kjit_status forward(kjit_runtime *runtime, const kjit_attention_sm90_config *config,
                           const kjit_attention_args *args, CUstream stream, kjit_error *error) {
  struct attention_call call;
  kjit_status status = attention_call_prepare(&call, runtime, config, args, error);
  if (status == KJIT_OK) status = attention_call_enqueue(&call, stream, error);
  if (status == KJIT_OK) runtime_count_launch(runtime);
  return status;
}

struct timed_call {
  struct attention_call call;
  CUstream stream;
};

static kjit_status enqueue(void *user, kjit_error *error) {
  const struct timed_call *timed = user;
  return attention_call_enqueue(&timed->call, timed->stream, error);
}

static kjit_status forward_timed(kjit_runtime *runtime, const kjit_attention_sm90_config *config,
                                 const kjit_attention_args *args, CUstream stream, float *milliseconds,
                                 kjit_error *error) {
  struct timed_call timed = {.stream = stream};
  error_clear(error);
  if (!milliseconds) return error_invalid(error, "milliseconds", "must not be NULL");
  *milliseconds = 0;
  kjit_status status = attention_call_prepare(&timed.call, runtime, config, args, error);
  if (status == KJIT_OK) status = runtime_time(runtime, stream, enqueue, &timed, milliseconds, error);
  if (status == KJIT_OK) runtime_count_launch(runtime);
  if (status != KJIT_OK) *milliseconds = 0;
  return status;
}

kjit_status kjit_attention_forward(kjit_runtime *runtime, const kjit_attention_args *args, CUstream stream,
                                   kjit_error *error) {
  return forward(runtime, NULL, args, stream, error);
}

kjit_status kjit_attention_forward_timed(kjit_runtime *runtime, const kjit_attention_args *args, CUstream stream,
                                         float *milliseconds, kjit_error *error) {
  return forward_timed(runtime, NULL, args, stream, milliseconds, error);
}

kjit_status kjit_attention_sm90_forward(kjit_runtime *runtime, const kjit_attention_sm90_config *config,
                                        const kjit_attention_args *args, CUstream stream, kjit_error *error) {
  error_clear(error);
  if (!config) return error_invalid(error, "config", "must not be NULL");
  return forward(runtime, config, args, stream, error);
}

kjit_status kjit_attention_sm90_forward_timed(kjit_runtime *runtime, const kjit_attention_sm90_config *config,
                                              const kjit_attention_args *args, CUstream stream, float *milliseconds,
                                              kjit_error *error) {
  error_clear(error);
  if (milliseconds) *milliseconds = 0;
  if (!config) return error_invalid(error, "config", "must not be NULL");
  return forward_timed(runtime, config, args, stream, milliseconds, error);
}
