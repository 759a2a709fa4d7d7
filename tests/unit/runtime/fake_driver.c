#include "fake_driver_internal.h"

#include <stdlib.h>
#include <string.h>

struct fake_driver fake_driver;
#define NOT_SET (-2) /* a thread that has set nothing yet */

/* The device whose context is current on this thread, and what was current before a push; -1: none. */
static _Thread_local int set_current = NOT_SET, pushed_on;
static _Thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

struct CUevent_st {
  int unused;
};

void fake_driver_reset(void) {
  memset(&fake_driver, 0, sizeof fake_driver);
  fake_driver.device_count = FAKE_DEVICES;
  fake_driver.device[0] = (struct fake_device){.major = 9, .minor = 0, .shared_opt_in = 232448};
  fake_driver.device[1] = (struct fake_device){.major = 8, .minor = 0, .shared_opt_in = 166912};
  fake_driver.max_threads = 1024;
  fake_driver.parameter_count = 1;
  fake_driver.parameter_bytes = 16;
  fake_driver.global_bytes = sizeof fake_driver.global;
  fake_driver.context_id = fake_driver.buffer_id = 1;
  fake_driver.fail_call = FAKE_CALLS;
  fake_driver.failure = CUDA_ERROR_UNKNOWN;
  fake_driver.refusal = CUDA_ERROR_INVALID_IMAGE;
  atomic_store(&fake_driver.fail_at, FAKE_NEVER);
  fake_driver.new_threads_current = -1;
  set_current = 0;
}

void fake_driver_set_current(int device) {
  set_current = device;
}

int fake_current(void) {
  return set_current == NOT_SET ? fake_driver.new_threads_current : set_current;
}

int fake_driver_calls_of(enum fake_call call) {
  return atomic_load(&fake_driver.calls_of[call]);
}

CUresult fake_enter(enum fake_call call) {
  const long index = atomic_fetch_add(&fake_driver.calls, 1);
  atomic_fetch_add(&fake_driver.calls_of[call], 1);
  if (index == atomic_load(&fake_driver.fail_at) || call == fake_driver.fail_call) return fake_driver.failure;
  return CUDA_SUCCESS;
}

struct fake_device *fake_device_of(CUdevice handle) {
  const int index = handle - fake_driver.first_handle;
  return index >= 0 && index < fake_driver.device_count ? &fake_driver.device[index] : NULL;
}

static CUresult fake_init(unsigned int flags) {
  ENTER(Init);
  return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult fake_driver_get_version(int *version) {
  ENTER(DriverGetVersion);
  *version = 13000;
  return CUDA_SUCCESS;
}

static CUresult fake_get_error_name(CUresult result, const char **name) {
  ENTER(GetErrorName);
  *name = result == CUDA_ERROR_INVALID_VALUE   ? "CUDA_ERROR_INVALID_VALUE"
          : result == CUDA_ERROR_INVALID_IMAGE ? "CUDA_ERROR_INVALID_IMAGE"
          : result == CUDA_ERROR_UNKNOWN       ? "CUDA_ERROR_UNKNOWN"
                                               : NULL;
  return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_get_error_string(CUresult result, const char **text) {
  ENTER(GetErrorString);
  *text = result == CUDA_ERROR_INVALID_IMAGE ? "the image is bad" : "something is bad";
  return CUDA_SUCCESS;
}

static CUresult fake_device_get_count(int *count) {
  ENTER(DeviceGetCount);
  *count = fake_driver.device_count;
  return CUDA_SUCCESS;
}

static CUresult fake_device_get(CUdevice *device, int ordinal) {
  ENTER(DeviceGet);
  *device = fake_driver.first_handle + ordinal;
  return fake_device_of(*device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult fake_device_get_name(char *name, int capacity, CUdevice device) {
  ENTER(DeviceGetName);
  strncpy(name, "Fake GPU", (size_t)capacity);
  return fake_device_of(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult fake_device_get_attribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  ENTER(DeviceGetAttribute);
  const struct fake_device *const it = fake_device_of(device);
  if (!it) return CUDA_ERROR_INVALID_DEVICE;
  *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR            ? it->major
           : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR          ? it->minor
           : attribute == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN ? it->shared_opt_in
                                                                                : (int)attribute; /* a mix-up shows */
  return CUDA_SUCCESS;
}

static CUresult fake_device_total_mem(size_t *bytes, CUdevice device) {
  ENTER(DeviceTotalMem);
  *bytes = (size_t)80 << 30;
  return fake_device_of(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult fake_ctx_get_device(CUdevice *device) {
  ENTER(CtxGetDevice);
  const int current = fake_current();
  if (current < 0) return CUDA_ERROR_INVALID_CONTEXT;
  *device = fake_driver.first_handle + current;
  return CUDA_SUCCESS;
}

static CUresult fake_ctx_get_id(CUcontext context, unsigned long long *id) {
  *id = context ? 0 : fake_driver.context_id; /* NULL: the current one */
  return fake_enter(FAKE_CtxGetId);
}

/* A map that shows what it was made of. */
static CUresult fake_tensor_map_encode_tiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                             const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                                             const cuuint32_t *every, CUtensorMapInterleave interleave,
                                             CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                             CUtensorMapFloatOOBfill fill) {
  if (rank < 1 || rank > 5) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t how = type | interleave << 8 | swizzle << 16 | promotion << 24 | (uint64_t)fill << 32;
  uint64_t words[16] = {(uintptr_t)address, [10] = box[0], box[1], box[2], how, every[1], rank};
  memcpy(&words[1], sizes, rank * sizeof *sizes);
  memcpy(&words[6], strides, (rank - 1) * sizeof *strides);
  memcpy(map, words, sizeof words);
  return fake_enter(FAKE_TensorMapEncodeTiled);
}

static CUcontext primary_of(CUdevice device) {
  return (CUcontext)(uintptr_t)(0x1000 + device);
}

static CUresult fake_ctx_get_current(CUcontext *context) {
  ENTER(CtxGetCurrent);
  const int current = fake_current();
  *context = current < 0           ? NULL
             : fake_driver.context ? fake_driver.context
                                   : primary_of(fake_driver.first_handle + current);
  return CUDA_SUCCESS;
}

static CUresult fake_ctx_push_current(CUcontext context) {
  ENTER(CtxPushCurrent);
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  pushed_on = fake_current();
  set_current = (int)((uintptr_t)context - (uintptr_t)primary_of(fake_driver.first_handle));
  return CUDA_SUCCESS;
}

static CUresult fake_ctx_pop_current(CUcontext *context) {
  *context = NULL;
  set_current = pushed_on;
  return fake_enter(FAKE_CtxPopCurrent);
}

static CUresult fake_ctx_synchronize(void) {
  ENTER(CtxSynchronize);
  atomic_fetch_add(&fake_driver.synchronized, 1);
  return CUDA_SUCCESS;
}

static CUresult fake_primary_get_state(CUdevice device, unsigned int *flags, int *active) {
  ENTER(DevicePrimaryCtxGetState);
  *flags = 0;
  *active = 1;
  return fake_device_of(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult fake_primary_retain(CUcontext *context, CUdevice device) {
  ENTER(DevicePrimaryCtxRetain);
  *context = primary_of(device);
  atomic_fetch_add(&fake_driver.live, 1);
  return CUDA_SUCCESS;
}

static CUresult fake_primary_release(CUdevice device) {
  (void)device;
  atomic_fetch_sub(&fake_driver.live, 1);
  return fake_enter(FAKE_DevicePrimaryCtxRelease);
}

static CUresult fake_copy_to_device(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  (void)stream;
  ENTER(MemcpyHtoDAsync);
  memcpy((void *)(uintptr_t)to, from, bytes);
  return CUDA_SUCCESS;
}

static CUresult fake_copy_to_host(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  (void)stream;
  ENTER(MemcpyDtoHAsync);
  memcpy(to, (const void *)(uintptr_t)from, bytes);
  return CUDA_SUCCESS;
}

static CUresult fake_stream_synchronize(CUstream stream) {
  (void)stream;
  return fake_enter(FAKE_StreamSynchronize);
}

static CUresult give(CUdeviceptr *memory, size_t bytes) {
  *memory = (CUdeviceptr)(uintptr_t)malloc(bytes);
  atomic_fetch_add(&fake_driver.live, 1);
  return *memory ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void take(CUdeviceptr memory) {
  atomic_fetch_sub(&fake_driver.live, memory != 0);
  free((void *)(uintptr_t)memory);
}

/* Somebody is capturing, as far as this knows. */
static CUresult fake_mem_alloc(CUdeviceptr *memory, size_t bytes) {
  if (capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  ENTER(MemAlloc);
  return give(memory, bytes);
}

static CUresult fake_mem_free(CUdeviceptr memory) {
  take(memory);
  return fake_enter(FAKE_MemFree);
}

static CUresult fake_memset_d32_async(CUdeviceptr memory, unsigned int value, size_t count, CUstream stream) {
  unsigned int *const words = (unsigned int *)(uintptr_t)memory;
  (void)stream;
  for (size_t i = 0; i < count; i++)
    words[i] = value;
  return fake_enter(FAKE_MemsetD32Async);
}

static CUresult fake_memset_d2d32_async(CUdeviceptr memory, size_t pitch, unsigned int value, size_t width,
                                        size_t height, CUstream stream) {
  (void)stream;
  for (size_t row = 0; row < height; row++) {
    unsigned int *const words = (unsigned int *)(uintptr_t)(memory + row * pitch);
    for (size_t i = 0; i < width; i++)
      words[i] = value;
  }
  return fake_enter(FAKE_MemsetD2D32Async);
}

static CUresult fake_mem_alloc_async(CUdeviceptr *memory, size_t bytes, CUstream stream) {
  (void)stream;
  ENTER(MemAllocAsync);
  return give(memory, bytes);
}

static CUresult fake_mem_free_async(CUdeviceptr memory, CUstream stream) {
  (void)stream;
  take(memory);
  return fake_enter(FAKE_MemFreeAsync);
}

static CUresult fake_stream_get_id(CUstream stream, unsigned long long *id) {
  *id = (uintptr_t)stream;
  return fake_enter(FAKE_StreamGetId);
}

static CUresult fake_stream_is_capturing(CUstream stream, CUstreamCaptureStatus *status) {
  (void)stream;
  ENTER(StreamIsCapturing);
  *status = fake_driver.capture;
  return CUDA_SUCCESS;
}

static CUresult fake_thread_exchange_stream_capture_mode(CUstreamCaptureMode *mode) {
  const CUstreamCaptureMode last = capture_mode;
  capture_mode = *mode;
  *mode = last;
  return fake_enter(FAKE_ThreadExchangeStreamCaptureMode);
}

static CUresult fake_event_create(CUevent *event, unsigned int flags) {
  (void)flags;
  ENTER(EventCreate);
  *event = calloc(1, sizeof **event);
  atomic_fetch_add(&fake_driver.live, 1);
  return *event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult fake_event_record(CUevent event, CUstream stream) {
  (void)stream;
  ENTER(EventRecord);
  return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult fake_event_synchronize(CUevent event) {
  ENTER(EventSynchronize);
  return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult fake_event_elapsed_time(float *milliseconds, CUevent start, CUevent end) {
  ENTER(EventElapsedTime);
  *milliseconds = 1.5f;
  return start && end && start != end ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult fake_event_destroy(CUevent event) {
  free(event);
  atomic_fetch_sub(&fake_driver.live, 1);
  return fake_enter(FAKE_EventDestroy);
}

static CUresult fake_pointer_get_attributes(unsigned int count, CUpointer_attribute *attributes, void **values,
                                            CUdeviceptr pointer) {
  (void)pointer;
  ENTER(PointerGetAttributes);
  for (unsigned int i = 0; i < count; i++) {
    if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
      *(unsigned int *)values[i] = (unsigned int)fake_driver.pointer.type;
    else if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
      *(int *)values[i] = fake_driver.pointer.device;
    else if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_POINTER)
      *(CUdeviceptr *)values[i] = fake_driver.pointer.seen_at;
    else if (attributes[i] == CU_POINTER_ATTRIBUTE_BUFFER_ID)
      *(unsigned long long *)values[i] = fake_driver.buffer_id;
    else
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

const struct driver_api fake_driver_api = {
    .Init = fake_init,
    .DriverGetVersion = fake_driver_get_version,
    .GetErrorName = fake_get_error_name,
    .GetErrorString = fake_get_error_string,
    .DeviceGetCount = fake_device_get_count,
    .DeviceGet = fake_device_get,
    .DeviceGetName = fake_device_get_name,
    .DeviceGetAttribute = fake_device_get_attribute,
    .DeviceTotalMem = fake_device_total_mem,
    .CtxGetDevice = fake_ctx_get_device,
    .CtxGetId = fake_ctx_get_id,
    .LibraryLoadData = fake_library_load_data,
    .LibraryUnload = fake_library_unload,
    .LibraryGetKernel = fake_library_get_kernel,
    .KernelGetFunction = fake_kernel_get_function,
    .KernelGetAttribute = fake_kernel_get_attribute,
    .KernelSetAttribute = fake_kernel_set_attribute,
    .KernelGetParamInfo = fake_kernel_get_param_info,
    .LibraryGetModule = fake_library_get_module,
    .LibraryGetGlobal = fake_library_get_global,
    .OccupancyMaxActiveBlocksPerMultiprocessor = fake_max_active_blocks,
    .OccupancyMaxActiveClusters = fake_max_active_clusters,
    .OccupancyMaxPotentialBlockSize = fake_max_potential_block_size,
    .CtxGetCurrent = fake_ctx_get_current,
    .CtxPushCurrent = fake_ctx_push_current,
    .CtxPopCurrent = fake_ctx_pop_current,
    .CtxSynchronize = fake_ctx_synchronize,
    .DevicePrimaryCtxGetState = fake_primary_get_state,
    .DevicePrimaryCtxRetain = fake_primary_retain,
    .DevicePrimaryCtxRelease = fake_primary_release,
    .MemcpyHtoDAsync = fake_copy_to_device,
    .MemcpyDtoHAsync = fake_copy_to_host,
    .StreamSynchronize = fake_stream_synchronize,
    .LaunchKernel = fake_launch_kernel,
    .LaunchKernelEx = fake_launch_kernel_ex,
    .TensorMapEncodeTiled = fake_tensor_map_encode_tiled,
    .MemAlloc = fake_mem_alloc,
    .MemFree = fake_mem_free,
    .MemsetD32Async = fake_memset_d32_async,
    .MemsetD2D32Async = fake_memset_d2d32_async,
    .MemAllocAsync = fake_mem_alloc_async,
    .MemFreeAsync = fake_mem_free_async,
    .StreamGetId = fake_stream_get_id,
    .StreamIsCapturing = fake_stream_is_capturing,
    .ThreadExchangeStreamCaptureMode = fake_thread_exchange_stream_capture_mode,
    .EventCreate = fake_event_create,
    .EventRecord = fake_event_record,
    .EventSynchronize = fake_event_synchronize,
    .EventElapsedTime = fake_event_elapsed_time,
    .EventDestroy = fake_event_destroy,
    .PointerGetAttributes = fake_pointer_get_attributes,
};
