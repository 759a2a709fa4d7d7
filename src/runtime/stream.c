/* Identifies a stream by numbers that the driver never reuses. A handle is not enough, because it may be that of
 * another stream after the first was destroyed, and cudaStreamPerThread is one handle for a stream of each thread. Any
 * thread. */
#include "runtime/runtime_internal.h"

#include "runtime/runtime_state.h"
#include <stdbool.h>

/* A number for the calling thread, from 1. It tells apart the streams that the per-thread handle stands for. */
static uint64_t own_number(void) {
  static _Atomic(uint64_t) last;
  static _Thread_local uint64_t number;
  if (number == 0) number = 1 + atomic_fetch_add_explicit(&last, 1, memory_order_relaxed);
  return number;
}

bool runtime_stream_is_captured(kjit_runtime *runtime, CUstream stream) {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  return runtime->gpu.driver.cu.StreamIsCapturing(stream, &capture) != CUDA_SUCCESS ||
         capture != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool runtime_stream_identify(kjit_runtime *runtime, CUstream stream, struct runtime_stream *out) {
  const struct driver_api *const cu = &runtime->gpu.driver.cu;
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  unsigned long long context = 0, id = 0;
  if (cu->StreamIsCapturing(stream, &capture) != CUDA_SUCCESS || capture != CU_STREAM_CAPTURE_STATUS_NONE) return false;
  if (cu->CtxGetId(NULL, &context) != CUDA_SUCCESS || cu->StreamGetId(stream, &id) != CUDA_SUCCESS) return false;
  *out = (struct runtime_stream){
      .context = context, .stream = id, .thread = stream == CU_STREAM_PER_THREAD ? own_number() : 0};
  return true;
}
