#include "gpu.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>

static struct {
  CUresult (*init)(unsigned flags);
  CUresult (*device_get)(CUdevice *device, int ordinal);
  CUresult (*context_retain)(CUcontext *context, CUdevice device);
  CUresult (*context_set)(CUcontext context);
  CUresult (*memory_alloc)(CUdeviceptr *address, size_t bytes);
  CUresult (*copy_in)(CUdeviceptr to, const void *from, size_t bytes);
  CUresult (*copy_out)(void *to, CUdeviceptr from, size_t bytes);
} driver;

/* The way that POSIX gives from dlsym()'s pointer to a function's. */
static int find(void *library, const char *name, void *function) {
  return (*(void **)function = dlsym(library, name)) != NULL;
}

static int load(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  return library && find(library, "cuInit", &driver.init) && find(library, "cuDeviceGet", &driver.device_get) &&
         find(library, "cuDevicePrimaryCtxRetain", &driver.context_retain) &&
         find(library, "cuCtxSetCurrent", &driver.context_set) &&
         find(library, "cuMemAlloc_v2", &driver.memory_alloc) && find(library, "cuMemcpyHtoD_v2", &driver.copy_in) &&
         find(library, "cuMemcpyDtoH_v2", &driver.copy_out);
}

int gpu_open(void) {
  CUdevice device;
  CUcontext context;
  return load() && driver.init(0) == CUDA_SUCCESS && driver.device_get(&device, 0) == CUDA_SUCCESS &&
         driver.context_retain(&context, device) == CUDA_SUCCESS && driver.context_set(context) == CUDA_SUCCESS;
}

void *gpu_memory(const void *data, size_t bytes) {
  CUdeviceptr address = 0;
  if (driver.memory_alloc(&address, bytes) != CUDA_SUCCESS) return NULL;
  if (data && driver.copy_in(address, data, bytes) != CUDA_SUCCESS) return NULL;
  return (void *)(uintptr_t)address;
}

int gpu_fetch(void *data, const void *memory, size_t bytes) {
  return driver.copy_out(data, (CUdeviceptr)(uintptr_t)memory, bytes) == CUDA_SUCCESS;
}
