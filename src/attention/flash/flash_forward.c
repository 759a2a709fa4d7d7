/* Launching by config: once, or timed. */
#include "attention/flash/flash_call.h"
#include "base/error.h"
#include "runtime/runtime_internal.h"

kjit_status kjit_flash_forward(kjit_runtime *runtime, const kjit_flash_config *config, const kjit_attention_args *args,
                               CUstream stream, kjit_error *error) {
  struct flash_call call;
  kjit_status status = flash_call_prepare(&call, runtime, config, args, error);
  if (status == KJIT_OK) status = flash_call_enqueue(&call, stream, error);
  if (status == KJIT_OK) runtime_count_launch(runtime);
  return status;
}

struct timed_call {
  struct flash_call call;
  CUstream stream;
};

static kjit_status enqueue(void *user, kjit_error *error) {
  const struct timed_call *timed = user;
  return flash_call_enqueue(&timed->call, timed->stream, error);
}

kjit_status kjit_flash_forward_timed(kjit_runtime *runtime, const kjit_flash_config *config,
                                     const kjit_attention_args *args, CUstream stream, float *milliseconds,
                                     kjit_error *error) {
  struct timed_call timed = {.stream = stream};
  error_clear(error);
  if (!milliseconds) return error_invalid(error, "milliseconds", "must not be NULL");
  *milliseconds = 0;
  kjit_status status = flash_call_prepare(&timed.call, runtime, config, args, error);
  if (status == KJIT_OK) status = runtime_time(runtime, stream, enqueue, &timed, milliseconds, error);
  if (status == KJIT_OK) runtime_count_launch(runtime);
  if (status != KJIT_OK) *milliseconds = 0;
  return status;
}
