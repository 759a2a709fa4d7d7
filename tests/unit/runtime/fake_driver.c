#include "fake_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct fake_driver fake_driver;
static _Thread_local int current;
static _Thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

struct CUlib_st {
  int unused;
};
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
  current = 0;
}

void fake_driver_set_current(int device) {
  current = device;
}

int fake_driver_calls_of(enum fake_call call) {
  return atomic_load(&fake_driver.calls_of[call]);
}

static CUresult enter(enum fake_call call) {
  const long index = atomic_fetch_add(&fake_driver.calls, 1);
  atomic_fetch_add(&fake_driver.calls_of[call], 1);
  if (index == atomic_load(&fake_driver.fail_at) || call == fake_driver.fail_call) return fake_driver.failure;
  return CUDA_SUCCESS;
}

#define ENTER(name)                                                                                                    \
  do {                                                                                                                 \
    const CUresult told = enter(FAKE_##name);                                                                          \
    if (told != CUDA_SUCCESS) return told;                                                                             \
  } while (0)

static struct fake_device *device_of(CUdevice handle) {
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
  return device_of(*device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult fake_device_get_name(char *name, int capacity, CUdevice device) {
  ENTER(DeviceGetName);
  strncpy(name, "Fake GPU", (size_t)capacity);
  return device_of(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult fake_device_get_attribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  ENTER(DeviceGetAttribute);
  const struct fake_device *const it = device_of(device);
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
  return device_of(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult fake_ctx_get_device(CUdevice *device) {
  ENTER(CtxGetDevice);
  if (current < 0) return CUDA_ERROR_INVALID_CONTEXT;
  *device = fake_driver.first_handle + current;
  return CUDA_SUCCESS;
}

static CUresult read_image(void) {
  if (atomic_load(&fake_driver.refuse_images) <= 0) return CUDA_SUCCESS;
  atomic_fetch_sub(&fake_driver.refuse_images, 1);
  return fake_driver.refusal;
}

static CUresult fake_library_load_data(CUlibrary *library, const void *image, CUjit_option *jit_options,
                                       void **jit_values, unsigned int jit_count, CUlibraryOption *options,
                                       void **values, unsigned int count) {
  (void)jit_options, (void)jit_values, (void)options, (void)values;
  ENTER(LibraryLoadData);
  if (!image || jit_count || count) return CUDA_ERROR_INVALID_VALUE;
  if (fake_driver.load_us) usleep(fake_driver.load_us);
  const CUresult read = fake_driver.eager ? read_image() : CUDA_SUCCESS;
  if (read != CUDA_SUCCESS) return read;
  *library = calloc(1, sizeof **library);
  atomic_fetch_add(&fake_driver.live, 1);
  return *library ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* A driver that fails to unload has unloaded all the same. */
static CUresult fake_library_unload(CUlibrary library) {
  free(library);
  atomic_fetch_sub(&fake_driver.live, 1);
  return enter(FAKE_LibraryUnload);
}

static CUresult fake_library_get_kernel(CUkernel *kernel, CUlibrary library, const char *name) {
  ENTER(LibraryGetKernel);
  const CUresult read = fake_driver.eager ? CUDA_SUCCESS : read_image();
  if (read != CUDA_SUCCESS) return read;
  *kernel = (CUkernel)library;
  snprintf(fake_driver.kernel_name, sizeof fake_driver.kernel_name, "%s", name);
  return name && *name && strcmp(name, "absent") != 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

static CUresult fake_kernel_get_function(CUfunction *function, CUkernel kernel) {
  ENTER(KernelGetFunction);
  *function = (CUfunction)kernel;
  return current < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

static CUresult fake_kernel_get_attribute(int *value, CUfunction_attribute attribute, CUkernel kernel,
                                          CUdevice device) {
  ENTER(KernelGetAttribute);
  if (!kernel || !device_of(device)) return CUDA_ERROR_INVALID_VALUE;
  *value = attribute == CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES ? fake_driver.static_shared : fake_driver.max_threads;
  return CUDA_SUCCESS;
}

static CUresult fake_kernel_set_attribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device) {
  ENTER(KernelSetAttribute);
  struct fake_device *const it = device_of(device);
  if (kernel && it && attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) {
    atomic_fetch_add(&it->large_clusters, 1);
    return value == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  if (!kernel || !it || attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_ERROR_INVALID_VALUE;
  if (value > it->shared_opt_in - fake_driver.static_shared) return CUDA_ERROR_INVALID_VALUE;
  if (fake_driver.load_us) usleep(fake_driver.load_us);
  atomic_fetch_add(&it->raised, 1);
  atomic_store(&it->raised_bytes, value);
  return CUDA_SUCCESS;
}

static CUresult fake_kernel_get_param_info(CUkernel kernel, size_t index, size_t *offset, size_t *bytes) {
  ENTER(KernelGetParamInfo);
  if (!kernel || index >= fake_driver.parameter_count) return CUDA_ERROR_INVALID_VALUE;
  *offset = index * fake_driver.parameter_bytes;
  *bytes = fake_driver.parameter_bytes;
  return CUDA_SUCCESS;
}

static CUresult remember(const CUlaunchConfig *config, CUfunction function, void **parameters) {
  struct fake_launch *const it = &fake_driver.launch;
  *it = (struct fake_launch){.function = function,
                             .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                             .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
                             .shared_bytes = config->sharedMemBytes,
                             .stream = config->hStream};
  const size_t bytes = fake_driver.parameter_bytes < FAKE_ARGS ? fake_driver.parameter_bytes : FAKE_ARGS;
  for (size_t i = 0; i < fake_driver.parameter_count && (i + 1) * bytes <= FAKE_ARGS; i++)
    memcpy(it->args + i * bytes, parameters[i], bytes);
  if (config->numAttrs > FAKE_ATTRIBUTES) return CUDA_ERROR_INVALID_VALUE;
  it->attribute_count = config->numAttrs;
  for (unsigned int i = 0; i < config->numAttrs; i++) {
    it->attributes[i] = config->attrs[i];
    if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
      memcpy(it->cluster, &config->attrs[i].value.clusterDim, sizeof it->cluster);
  }
  return CUDA_SUCCESS;
}

static CUresult fake_launch_kernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                   unsigned int block_x, unsigned int block_y, unsigned int block_z,
                                   unsigned int shared_bytes, CUstream stream, void **parameters, void **extra) {
  ENTER(LaunchKernel);
  if (extra) return CUDA_ERROR_INVALID_VALUE;
  const CUlaunchConfig config = {.gridDimX = grid_x,
                                 .gridDimY = grid_y,
                                 .gridDimZ = grid_z,
                                 .blockDimX = block_x,
                                 .blockDimY = block_y,
                                 .blockDimZ = block_z,
                                 .sharedMemBytes = shared_bytes,
                                 .hStream = stream};
  return remember(&config, function, parameters);
}

static CUresult fake_launch_kernel_ex(const CUlaunchConfig *config, CUfunction function, void **parameters,
                                      void **extra) {
  ENTER(LaunchKernelEx);
  return extra ? CUDA_ERROR_INVALID_VALUE : remember(config, function, parameters);
}

static CUresult fake_ctx_get_id(CUcontext context, unsigned long long *id) {
  *id = context ? 0 : fake_driver.context_id; /* NULL: the current one */
  return enter(FAKE_CtxGetId);
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
  return enter(FAKE_TensorMapEncodeTiled);
}

static CUresult fake_library_get_module(CUmodule *module, CUlibrary library) {
  ENTER(LibraryGetModule);
  const CUresult read = fake_driver.eager ? CUDA_SUCCESS : read_image();
  *module = (CUmodule)library;
  return read;
}

static CUresult fake_library_get_global(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name) {
  ENTER(LibraryGetGlobal);
  *address = (CUdeviceptr)(uintptr_t)fake_driver.global;
  *bytes = fake_driver.global_bytes;
  snprintf(fake_driver.kernel_name, sizeof fake_driver.kernel_name, "%s", name);
  return library && strcmp(name, "absent") != 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

static CUresult fake_max_active_blocks(int *blocks, CUfunction function, int threads, size_t shared_bytes) {
  ENTER(OccupancyMaxActiveBlocksPerMultiprocessor);
  *blocks = threads ? (int)(2048 / (unsigned)threads) : 0;
  return function && shared_bytes < 1u << 20 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_max_active_clusters(int *clusters, CUfunction function, const CUlaunchConfig *config) {
  ENTER(OccupancyMaxActiveClusters);
  *clusters = 33;
  return function && config->numAttrs ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_max_potential_block_size(int *grid, int *block, CUfunction function, CUoccupancyB2DSize of_block,
                                              size_t shared_bytes, int limit) {
  ENTER(OccupancyMaxPotentialBlockSize);
  *grid = 264;
  *block = 512;
  return function && !of_block && !limit && shared_bytes < 1u << 20 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUcontext primary_of(CUdevice device) {
  return (CUcontext)(uintptr_t)(0x1000 + device);
}

static CUresult fake_ctx_get_current(CUcontext *context) {
  ENTER(CtxGetCurrent);
  *context = fake_driver.context ? fake_driver.context : primary_of(fake_driver.first_handle + current);
  return CUDA_SUCCESS;
}

static CUresult fake_ctx_push_current(CUcontext context) {
  ENTER(CtxPushCurrent);
  return context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_ctx_pop_current(CUcontext *context) {
  *context = NULL;
  return enter(FAKE_CtxPopCurrent);
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
  return device_of(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
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
  return enter(FAKE_DevicePrimaryCtxRelease);
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
  return enter(FAKE_StreamSynchronize);
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
  return enter(FAKE_MemFree);
}

static CUresult fake_memset_d32_async(CUdeviceptr memory, unsigned int value, size_t count, CUstream stream) {
  (void)stream;
  memset((void *)(uintptr_t)memory, (int)value, count * sizeof value);
  return enter(FAKE_MemsetD32Async);
}

static CUresult fake_mem_alloc_async(CUdeviceptr *memory, size_t bytes, CUstream stream) {
  (void)stream;
  ENTER(MemAllocAsync);
  return give(memory, bytes);
}

static CUresult fake_mem_free_async(CUdeviceptr memory, CUstream stream) {
  (void)stream;
  take(memory);
  return enter(FAKE_MemFreeAsync);
}

static CUresult fake_stream_get_id(CUstream stream, unsigned long long *id) {
  *id = (uintptr_t)stream;
  return enter(FAKE_StreamGetId);
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
  return enter(FAKE_ThreadExchangeStreamCaptureMode);
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
  return enter(FAKE_EventDestroy);
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
