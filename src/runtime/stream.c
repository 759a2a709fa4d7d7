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

/* NULL and the driver's two constants are handles of another stream in each context. All others are streams that were
 * created, whose numbers are given out once in the life of a program. */
static bool is_of_each_context(CUstream stream) {
  return (uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD;
}

bool runtime_context_identify(kjit_runtime *runtime, uint64_t *out) {
  unsigned long long context = 0;
  if (runtime->gpu.driver.cu.CtxGetId(NULL, &context) != CUDA_SUCCESS) return false;
  *out = context;
  return true;
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
  if (cu->StreamGetId(stream, &id) != CUDA_SUCCESS) return false;
  if (is_of_each_context(stream) && cu->CtxGetId(NULL, &context) != CUDA_SUCCESS) return false;
  *out = (struct runtime_stream){
      .context = context, .stream = id, .thread = stream == CU_STREAM_PER_THREAD ? own_number() : 0};
  return true;
}
