/* Asks the driver for a device's primary context, and makes it current on a thread for a while. Each function is a few
 * driver calls and keeps nothing. Any thread. */
#include "runtime/primary.h"

#include <stddef.h>

/* Retaining a primary context that does not exist would make one. */
static bool is_active(const struct driver_api *cu, CUdevice device) {
  unsigned int flags;
  int active = 0;
  return cu->DevicePrimaryCtxGetState && cu->DevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS &&
         active;
}

bool primary_is_current(const struct driver_api *cu, CUdevice device) {
  CUcontext current = NULL, primary = NULL;
  if (!cu->CtxGetCurrent || !cu->DevicePrimaryCtxRetain || !cu->DevicePrimaryCtxRelease) return false;
  if (cu->CtxGetCurrent(&current) != CUDA_SUCCESS || !current) return false;
  if (!is_active(cu, device)) return false;
  if (cu->DevicePrimaryCtxRetain(&primary, device) != CUDA_SUCCESS) return false;
  (void)cu->DevicePrimaryCtxRelease(device);
  return current == primary;
}

bool primary_enter(const struct driver_api *cu, CUdevice device) {
  CUcontext context = NULL;
  if (!cu->DevicePrimaryCtxRetain || !cu->DevicePrimaryCtxRelease || !cu->CtxPushCurrent || !cu->CtxPopCurrent)
    return false;
  if (cu->DevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) return false;
  if (cu->CtxPushCurrent(context) == CUDA_SUCCESS) return true;
  (void)cu->DevicePrimaryCtxRelease(device);
  return false;
}

void primary_leave(const struct driver_api *cu, CUdevice device) {
  CUcontext context;
  (void)cu->CtxPopCurrent(&context);
  (void)cu->DevicePrimaryCtxRelease(device);
}
