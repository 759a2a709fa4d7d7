/* The driver by dlopen(): a table of the functions that the examples call, filled once. One thread. */
#include "gpu.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

static struct {
  CUresult (*init)(unsigned flags);
  CUresult (*device_get)(CUdevice *device, int ordinal);
  CUresult (*context_retain)(CUcontext *context, CUdevice device);
  CUresult (*context_set)(CUcontext context);
  CUresult (*stream_create)(CUstream *stream, unsigned flags);
  CUresult (*memory_alloc)(CUdeviceptr *address, size_t bytes);
  CUresult (*synchronize)(void);
  CUresult (*copy_in)(CUdeviceptr to, const void *from, size_t bytes);
  CUresult (*copy_out)(void *to, CUdeviceptr from, size_t bytes);
  CUresult (*begin_capture)(CUstream stream, CUstreamCaptureMode mode);
  CUresult (*end_capture)(CUstream stream, CUgraph *graph);
  CUresult (*instantiate)(CUgraphExec *graph, CUgraph from, unsigned long long flags);
  CUresult (*launch)(CUgraphExec graph, CUstream stream);
} driver;

/* The way that POSIX gives from dlsym()'s pointer to a function's. */
static int find(void *library, const char *name, void *function) {
  return (*(void **)function = dlsym(library, name)) != NULL;
}

static int load(void) {
  const char *const path = getenv("KJIT_LIBCUDA"); /* kjit opens that libcuda too */
  void *library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW);
  return library && find(library, "cuInit", &driver.init) && find(library, "cuDeviceGet", &driver.device_get) &&
         find(library, "cuDevicePrimaryCtxRetain", &driver.context_retain) &&
         find(library, "cuCtxSetCurrent", &driver.context_set) &&
         find(library, "cuStreamCreate", &driver.stream_create) &&
         find(library, "cuMemAlloc_v2", &driver.memory_alloc) &&
         find(library, "cuCtxSynchronize", &driver.synchronize) && find(library, "cuMemcpyHtoD_v2", &driver.copy_in) &&
         find(library, "cuMemcpyDtoH_v2", &driver.copy_out) &&
         find(library, "cuStreamBeginCapture_v2", &driver.begin_capture) &&
         find(library, "cuStreamEndCapture", &driver.end_capture) &&
         find(library, "cuGraphInstantiateWithFlags", &driver.instantiate) &&
         find(library, "cuGraphLaunch", &driver.launch);
}

int gpu_open(void) {
  CUdevice device;
  CUcontext context;
  return load() && driver.init(0) == CUDA_SUCCESS && driver.device_get(&device, 0) == CUDA_SUCCESS &&
         driver.context_retain(&context, device) == CUDA_SUCCESS && driver.context_set(context) == CUDA_SUCCESS;
}

int gpu_stream(CUstream *stream) {
  return driver.stream_create(stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
}

void *gpu_memory(const void *data, size_t bytes) {
  CUdeviceptr address = 0;
  void *const zeros = data ? NULL : calloc(1, bytes);
  const void *const from = data ? data : zeros;
  const int is_done = from && driver.memory_alloc(&address, bytes) == CUDA_SUCCESS &&
                      driver.copy_in(address, from, bytes) == CUDA_SUCCESS && driver.synchronize() == CUDA_SUCCESS;
  free(zeros);
  return is_done ? (void *)(uintptr_t)address : NULL;
}

int gpu_store(void *memory, const void *data, size_t bytes) {
  return driver.synchronize() == CUDA_SUCCESS &&
         driver.copy_in((CUdeviceptr)(uintptr_t)memory, data, bytes) == CUDA_SUCCESS;
}

int gpu_fetch(void *data, const void *memory, size_t bytes) {
  return driver.synchronize() == CUDA_SUCCESS &&
         driver.copy_out(data, (CUdeviceptr)(uintptr_t)memory, bytes) == CUDA_SUCCESS;
}

int gpu_begin_capture(CUstream stream) {
  return driver.begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS;
}

int gpu_end_capture(CUstream stream, CUgraphExec *graph) {
  CUgraph captured;
  return driver.end_capture(stream, &captured) == CUDA_SUCCESS &&
         driver.instantiate(graph, captured, 0) == CUDA_SUCCESS;
}

int gpu_launch_graph(CUgraphExec graph, CUstream stream) {
  return driver.launch(graph, stream) == CUDA_SUCCESS;
}
