/* The fake driver of the unit tests as a libcuda.so of its own, for programs that open theirs by path. */
#include <pthread.h>

#include "fake_driver.h"

#define DRIVER_FN(name, symbol, args) CUresult export_##name args __asm__(symbol);
#include "runtime/driver_api.def"
#undef DRIVER_FN

#define EXPORT(name, parameters, arguments)                                                                            \
  CUresult export_##name parameters {                                                                                  \
    return fake_driver_api.name arguments;                                                                             \
  }

EXPORT(Init, (unsigned int flags), (flags))
EXPORT(DriverGetVersion, (int *version), (version))
EXPORT(GetErrorName, (CUresult result, const char **name), (result, name))
EXPORT(GetErrorString, (CUresult result, const char **text), (result, text))

EXPORT(DeviceGetCount, (int *count), (count))
EXPORT(DeviceGet, (CUdevice * device, int ordinal), (device, ordinal))
EXPORT(DeviceGetName, (char *name, int capacity, CUdevice device), (name, capacity, device))
EXPORT(DeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device), (value, attribute, device))
EXPORT(DeviceTotalMem, (size_t * bytes, CUdevice device), (bytes, device))
EXPORT(CtxGetDevice, (CUdevice * device), (device))
EXPORT(CtxGetId, (CUcontext context, unsigned long long *id), (context, id))

EXPORT(LibraryLoadData,
       (CUlibrary * library, const void *image, CUjit_option *jit_options, void **jit_values, unsigned int jit_count,
        CUlibraryOption *options, void **values, unsigned int count),
       (library, image, jit_options, jit_values, jit_count, options, values, count))
EXPORT(LibraryUnload, (CUlibrary library), (library))
EXPORT(LibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char *name), (kernel, library, name))
EXPORT(KernelGetFunction, (CUfunction * function, CUkernel kernel), (function, kernel))
EXPORT(KernelGetAttribute, (int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device),
       (value, attribute, kernel, device))
EXPORT(KernelSetAttribute, (CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device),
       (attribute, value, kernel, device))
EXPORT(KernelGetParamInfo, (CUkernel kernel, size_t index, size_t *offset, size_t *bytes),
       (kernel, index, offset, bytes))

EXPORT(LibraryGetModule, (CUmodule * module, CUlibrary library), (module, library))
EXPORT(LibraryGetGlobal, (CUdeviceptr * address, size_t *bytes, CUlibrary library, const char *name),
       (address, bytes, library, name))
EXPORT(OccupancyMaxActiveBlocksPerMultiprocessor,
       (int *blocks, CUfunction function, int block_threads, size_t dynamic_shared_bytes),
       (blocks, function, block_threads, dynamic_shared_bytes))
EXPORT(OccupancyMaxActiveClusters, (int *clusters, CUfunction function, const CUlaunchConfig *config),
       (clusters, function, config))
EXPORT(OccupancyMaxPotentialBlockSize,
       (int *grid_blocks, int *block_threads, CUfunction function, CUoccupancyB2DSize shared_of_block,
        size_t dynamic_shared_bytes, int block_limit),
       (grid_blocks, block_threads, function, shared_of_block, dynamic_shared_bytes, block_limit))
EXPORT(MemcpyHtoDAsync, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream), (to, from, bytes, stream))
EXPORT(MemcpyDtoHAsync, (void *to, CUdeviceptr from, size_t bytes, CUstream stream), (to, from, bytes, stream))
EXPORT(StreamSynchronize, (CUstream stream), (stream))

/* The fake remembers what it launched last; here several threads launch at once. */
CUresult export_LaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                             unsigned int block_x, unsigned int block_y, unsigned int block_z,
                             unsigned int shared_bytes, CUstream stream, void **parameters, void **extra) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&lock);
  const CUresult result = fake_driver_api.LaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                                       shared_bytes, stream, parameters, extra);
  pthread_mutex_unlock(&lock);
  return result;
}

EXPORT(LaunchKernelEx, (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra),
       (config, function, parameters, extra))

EXPORT(TensorMapEncodeTiled,
       (CUtensorMap * map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *sizes,
        const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *every, CUtensorMapInterleave interleave,
        CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill),
       (map, type, rank, address, sizes, strides, box, every, interleave, swizzle, promotion, fill))

EXPORT(MemAlloc, (CUdeviceptr * memory, size_t bytes), (memory, bytes))
EXPORT(MemFree, (CUdeviceptr memory), (memory))
EXPORT(MemsetD32Async, (CUdeviceptr memory, unsigned int value, size_t count, CUstream stream),
       (memory, value, count, stream))
EXPORT(MemsetD2D32Async,
       (CUdeviceptr memory, size_t pitch, unsigned int value, size_t width, size_t height, CUstream stream),
       (memory, pitch, value, width, height, stream))
EXPORT(MemAllocAsync, (CUdeviceptr * memory, size_t bytes, CUstream stream), (memory, bytes, stream))
EXPORT(MemFreeAsync, (CUdeviceptr memory, CUstream stream), (memory, stream))

EXPORT(StreamGetId, (CUstream stream, unsigned long long *id), (stream, id))
EXPORT(StreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *status), (stream, status))
EXPORT(ThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode), (mode))
EXPORT(EventCreate, (CUevent * event, unsigned int flags), (event, flags))
EXPORT(EventRecord, (CUevent event, CUstream stream), (event, stream))
EXPORT(EventSynchronize, (CUevent event), (event))
EXPORT(EventElapsedTime, (float *milliseconds, CUevent start, CUevent end), (milliseconds, start, end))
EXPORT(EventDestroy, (CUevent event), (event))

EXPORT(PointerGetAttributes, (unsigned int count, CUpointer_attribute *attributes, void **values, CUdeviceptr pointer),
       (count, attributes, values, pointer))

__attribute__((constructor)) static void begin(void) {
  fake_driver_reset();
  fake_driver.new_threads_current = 0; /* because programs that know no fake cannot set it on their threads */
}
