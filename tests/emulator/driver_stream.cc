// Stand-in for libcuda: streams and events. Work is done before the call that enqueues it returns, so there is nothing
// to order and nothing to wait for. Graphs are not emulated.
#include "driver.h"

namespace emulator {

CUresult check_stream(const Driver &driver, CUstream stream) {
  CUcontext context;
  const CUresult result = require_context(driver, &context);
  if (result != CUDA_SUCCESS || !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) return result;
  if (!driver.streams.count(stream)) return CUDA_ERROR_INVALID_HANDLE;
  return stream->context == context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

} // namespace emulator

using namespace emulator;

extern "C" {

CUresult cuStreamCreate(CUstream *out, unsigned flags) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  CUcontext context;
  const CUresult result = require_context(driver(), &context);
  if (result != CUDA_SUCCESS) return result;
  if (flags != CU_STREAM_DEFAULT && flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  *out = new CUstream_st{context, ++driver().last_id};
  driver().streams.insert(*out);
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  if (!driver().streams.erase(stream)) return CUDA_ERROR_INVALID_HANDLE;
  delete stream;
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  return check_stream(driver(), stream);
}

CUresult cuStreamQuery(CUstream stream) {
  return cuStreamSynchronize(stream);
}

// The default streams have numbers of their own in each context.
CUresult cuStreamGetId(CUstream stream, unsigned long long *id) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  const CUresult result = check_stream(driver(), stream);
  if (result != CUDA_SUCCESS) return result;
  const bool is_own = stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
  const unsigned long long kDefault = 1ull << 62;
  *id = is_own ? stream->id : kDefault + 2 * current_context(driver())->id + (stream == CU_STREAM_PER_THREAD);
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  const CUresult result = check_stream(driver(), stream);
  if (result == CUDA_SUCCESS) *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return result;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  thread_local CUstreamCaptureMode current = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::swap(*mode, current);
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuStreamEndCapture(CUstream, CUgraph *) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, unsigned long long) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphLaunch(CUgraphExec, CUstream) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphDestroy(CUgraph) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphExecDestroy(CUgraphExec) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuEventCreate(CUevent *out, unsigned) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  CUcontext context;
  const CUresult result = require_context(driver(), &context);
  if (result != CUDA_SUCCESS) return result;
  *out = new CUevent_st{context, false, {}};
  driver().events.insert(*out);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  if (!driver().events.erase(event)) return CUDA_ERROR_INVALID_HANDLE;
  delete event;
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  const CUresult result = check_stream(driver(), stream);
  if (result != CUDA_SUCCESS) return result;
  if (!driver().events.count(event)) return CUDA_ERROR_INVALID_HANDLE;
  event->time = std::chrono::steady_clock::now();
  event->recorded = true;
  return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  return driver().events.count(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// The host's time: it says nothing of a GPU's.
CUresult cuEventElapsedTime(float *milliseconds, CUevent begin, CUevent end) {
  const std::lock_guard<std::mutex> hold(driver().lock);
  if (!driver().events.count(begin) || !driver().events.count(end)) return CUDA_ERROR_INVALID_HANDLE;
  if (!begin->recorded || !end->recorded) return CUDA_ERROR_INVALID_HANDLE;
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return CUDA_SUCCESS;
}

} // extern "C"
