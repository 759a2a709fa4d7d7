/* Times what a caller puts on a stream:
 *
 * 1. refuse a stream that is being captured, because waiting for it would break the capture;
 * 2. record an event, let the caller enqueue, record a second event;
 * 3. wait for the second event and return the time between the two.
 *
 * The events are destroyed on every path. Any thread; the call blocks until the work is done. */
#include "base/error.h"
#include "runtime/runtime_internal.h"
#include "runtime/runtime_state.h"

static kjit_status fail(const struct driver_api *cu, CUresult result, const char *call, kjit_error *error) {
  return driver_fail(cu, KJIT_ERR_DRIVER, result, error, "timing a launch: %s", call);
}

/* Step 1. A captured launch runs when its graph is launched, so there is nothing to wait for now. */
static kjit_status refuse_capture(const struct driver_api *cu, CUstream stream, kjit_error *error) {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = cu->StreamIsCapturing(stream, &capture);
  if (result == CUDA_SUCCESS && capture == CU_STREAM_CAPTURE_STATUS_NONE) return KJIT_OK;
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
    return fail(cu, result, "cuStreamIsCapturing", error);
  }
  return error_set(error, KJIT_ERR_INVALID_ARG,
                   "stream: is being captured into a graph; a timed launch waits for its result, so it cannot be "
                   "captured");
}

static kjit_status create_events(const struct driver_api *cu, CUevent events[2], kjit_error *error) {
  for (int i = 0; i < 2; i++) {
    const CUresult result = cu->EventCreate(&events[i], CU_EVENT_DEFAULT);
    if (result == CUDA_SUCCESS) continue;
    events[i] = NULL;
    return fail(cu, result, "cuEventCreate", error);
  }
  return KJIT_OK;
}

static kjit_status measure(const struct driver_api *cu, const CUevent events[2], float *milliseconds,
                           kjit_error *error) {
  CUresult result = cu->EventSynchronize(events[1]);
  if (result != CUDA_SUCCESS) return fail(cu, result, "cuEventSynchronize", error);
  float elapsed = 0;
  result = cu->EventElapsedTime(&elapsed, events[0], events[1]);
  if (result != CUDA_SUCCESS) return fail(cu, result, "cuEventElapsedTime", error);
  *milliseconds = elapsed;
  return KJIT_OK;
}

kjit_status runtime_time(kjit_runtime *runtime, CUstream stream, kjit_status (*enqueue)(void *user, kjit_error *error),
                         void *user, float *milliseconds, kjit_error *error) {
  const struct driver_api *const cu = &runtime->gpu.driver.cu;
  CUevent events[2] = {NULL, NULL};
  CUresult result;
  *milliseconds = 0;
  kjit_status status = gpu_open(&runtime->gpu, error);
  if (status == KJIT_OK) status = refuse_capture(cu, stream, error);
  if (status == KJIT_OK) status = create_events(cu, events, error);
  if (status != KJIT_OK) goto done;
  result = cu->EventRecord(events[0], stream);
  if (result != CUDA_SUCCESS) {
    status = fail(cu, result, "cuEventRecord", error);
    goto done;
  }
  status = enqueue(user, error);
  if (status != KJIT_OK) goto done;
  result = cu->EventRecord(events[1], stream);
  status = result == CUDA_SUCCESS ? measure(cu, events, milliseconds, error) : fail(cu, result, "cuEventRecord", error);

done:
  for (int i = 0; i < 2; i++) {
    if (events[i]) (void)cu->EventDestroy(events[i]);
  }
  return status;
}
