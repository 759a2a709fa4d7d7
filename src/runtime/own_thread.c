/* What a thread of the library's own does before it loads kernels: it takes the device's primary context, because a new
 * thread has none, and leaves alone what other threads capture. Each function is called by that thread, but for
 * runtime_primary_is_current(), which a call asks before it leaves work to the thread. */
#include "runtime/primary.h"
#include "runtime/runtime_internal.h"
#include "runtime/runtime_state.h"

static CUdevice handle_of(const kjit_runtime *runtime, const kjit_device_info *device) {
  return runtime->gpu.devices[device->ordinal].handle;
}

bool runtime_primary_is_current(const kjit_runtime *runtime, const kjit_device_info *device) {
  return primary_is_current(&runtime->gpu.driver.cu, handle_of(runtime, device));
}

bool runtime_primary_enter(kjit_runtime *runtime, const kjit_device_info *device) {
  return primary_enter(&runtime->gpu.driver.cu, handle_of(runtime, device));
}

void runtime_primary_leave(kjit_runtime *runtime, const kjit_device_info *device) {
  primary_leave(&runtime->gpu.driver.cu, handle_of(runtime, device));
}

void runtime_thread_leaves_captures(kjit_runtime *runtime) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  (void)runtime->gpu.driver.cu.ThreadExchangeStreamCaptureMode(&mode);
}
