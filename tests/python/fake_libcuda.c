/* A libcuda.so.1 for a machine without a GPU: the library of fakes of tests/ship, the contexts that Python asks for,
 * and questions that the tests ask. Nothing is launched; a launch is counted and remembered. */
#include "fake_driver.h"

/* The fakes, with all memory a device's: what fake_driver_library.c exports here (CMakeLists.txt). */
struct driver_api python_driver_api;

static CUresult know_pointer(unsigned int count, CUpointer_attribute *attributes, void **values, CUdeviceptr pointer) {
  fake_driver.pointer.type = CU_MEMORYTYPE_DEVICE;
  fake_driver.pointer.seen_at = pointer;
  return fake_driver_api.PointerGetAttributes(count, attributes, values, pointer);
}

__attribute__((constructor)) static void fill_table(void) {
  python_driver_api = fake_driver_api;
  python_driver_api.PointerGetAttributes = know_pointer;
}

/* Contexts: device i's is i + 1, so that NULL is none. */
static _Thread_local int now;

static CUcontext context_of(int device) {
  return (CUcontext)(uintptr_t)(device + 1);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  *context = context_of(device);
  return device >= 0 && device < fake_driver.device_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return device >= 0 && device < fake_driver.device_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active) {
  *flags = 0;
  *active = 1;
  return device >= 0 && device < fake_driver.device_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
  *context = context_of(now);
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  now = (int)(uintptr_t)context - 1;
  fake_driver_set_current(now);
  return CUDA_SUCCESS;
}

/* Contexts below the current one are not kept: whoever pushes one in a thread that has none takes it away again. */
CUresult cuCtxPushCurrent(CUcontext context) {
  return cuCtxSetCurrent(context);
}

CUresult cuCtxPopCurrent(CUcontext *context) {
  return cuCtxGetCurrent(context);
}

CUresult cuCtxSynchronize(void) {
  return CUDA_SUCCESS;
}

/* What the tests ask. */
int asked_launches(void);
int asked_current(void);
int asked_live(void);
int asked_allocations(void);
void *asked_stream(void);
void asked_to_fail(int fails);
void asked_parameters(size_t count, size_t bytes);
const void *asked_args(void);
void asked_shape(unsigned int shape[10]);
unsigned int asked_attribute(CUlaunchAttributeID id);
int asked_synchronized(void);

int asked_launches(void) {
  return fake_driver_calls_of(FAKE_LaunchKernel) + fake_driver_calls_of(FAKE_LaunchKernelEx);
}

int asked_current(void) {
  return now;
}

/* Libraries and memory that were not given back. */
int asked_live(void) {
  return atomic_load(&fake_driver.live);
}

/* How often memory was asked for. */
int asked_allocations(void) {
  return fake_driver_calls_of(FAKE_MemAlloc) + fake_driver_calls_of(FAKE_MemAllocAsync);
}

/* Of the last launch. */
void *asked_stream(void) {
  return fake_driver.launch.stream;
}

/* Every launch from now on, or none. */
void asked_to_fail(int fails) {
  fake_driver.fail_call = fails ? FAKE_LaunchKernel : FAKE_CALLS;
}

/* How many parameters of how many bytes each the fake remembers of a launch. */
void asked_parameters(size_t count, size_t bytes) {
  fake_driver.parameter_count = count;
  fake_driver.parameter_bytes = bytes;
}

/* The last launch's arguments side by side. */
const void *asked_args(void) {
  return fake_driver.launch.args;
}

/* Grid, block and cluster of the last launch, and its dynamic shared memory. */
void asked_shape(unsigned int shape[10]) {
  const struct fake_launch *const launch = &fake_driver.launch;
  for (int i = 0; i < 3; i++) {
    shape[i] = launch->grid[i];
    shape[3 + i] = launch->block[i];
    shape[6 + i] = launch->cluster[i];
  }
  shape[9] = launch->shared_bytes;
}

/* The number in an attribute of the last launch; ~0: it has none such. */
unsigned int asked_attribute(CUlaunchAttributeID id) {
  for (unsigned int i = 0; i < fake_driver.launch.attribute_count; i++) {
    const CUlaunchAttribute *const attribute = &fake_driver.launch.attributes[i];
    if (attribute->id == id) return (unsigned int)attribute->value.cooperative;
  }
  return ~0u;
}

/* Streams that were waited for. */
int asked_synchronized(void) {
  return fake_driver_calls_of(FAKE_StreamSynchronize);
}
