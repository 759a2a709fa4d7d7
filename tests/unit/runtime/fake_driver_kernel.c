/* The fake driver's libraries, kernels, launches and occupancy. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake_driver_internal.h"

struct CUlib_st {
  const struct fake_kernel *other; /* the one of fake_driver.other_kernels that was asked for last, or NULL */
};

/* Several threads may load at once, and the name of any of them is the last one. */
static void note_name(const char *name) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&mutex);
  snprintf(fake_driver.kernel_name, sizeof fake_driver.kernel_name, "%s", name);
  pthread_mutex_unlock(&mutex);
}

static CUresult read_image(void) {
  if (atomic_load(&fake_driver.refuse_images) <= 0) return CUDA_SUCCESS;
  atomic_fetch_sub(&fake_driver.refuse_images, 1);
  return fake_driver.refusal;
}

CUresult fake_library_load_data(CUlibrary *library, const void *image, CUjit_option *jit_options, void **jit_values,
                                unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count) {
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
CUresult fake_library_unload(CUlibrary library) {
  free(library);
  atomic_fetch_sub(&fake_driver.live, 1);
  return fake_enter(FAKE_LibraryUnload);
}

CUresult fake_library_get_kernel(CUkernel *kernel, CUlibrary library, const char *name) {
  ENTER(LibraryGetKernel);
  const CUresult read = fake_driver.eager ? CUDA_SUCCESS : read_image();
  if (read != CUDA_SUCCESS) return read;
  *kernel = (CUkernel)library;
  note_name(name);
  library->other = NULL;
  for (size_t i = 0; name && i < sizeof fake_driver.other_kernels / sizeof *fake_driver.other_kernels; i++) {
    const struct fake_kernel *const other = &fake_driver.other_kernels[i];
    if (other->name && strcmp(name, other->name) == 0) library->other = other;
  }
  return name && *name && strcmp(name, "absent") != 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult fake_kernel_get_function(CUfunction *function, CUkernel kernel) {
  ENTER(KernelGetFunction);
  *function = (CUfunction)kernel;
  return fake_current() < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

CUresult fake_kernel_get_attribute(int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device) {
  ENTER(KernelGetAttribute);
  if (!kernel || !fake_device_of(device)) return CUDA_ERROR_INVALID_VALUE;
  *value = attribute == CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES ? fake_driver.static_shared : fake_driver.max_threads;
  return CUDA_SUCCESS;
}

CUresult fake_kernel_set_attribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device) {
  ENTER(KernelSetAttribute);
  struct fake_device *const it = fake_device_of(device);
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

CUresult fake_kernel_get_param_info(CUkernel kernel, size_t index, size_t *offset, size_t *bytes) {
  ENTER(KernelGetParamInfo);
  if (!kernel || index >= fake_driver.parameter_count) return CUDA_ERROR_INVALID_VALUE;
  *offset = index * fake_driver.parameter_bytes;
  *bytes = fake_driver.parameter_bytes;
  return CUDA_SUCCESS;
}

/* A function is its kernel, and that its library. */
static size_t parameter_bytes_of(CUfunction function) {
  const struct fake_kernel *const other = ((CUlibrary)function)->other;
  const size_t bytes = other ? other->parameter_bytes : fake_driver.parameter_bytes;
  return bytes < FAKE_ARGS ? bytes : FAKE_ARGS;
}

static CUresult remember(const CUlaunchConfig *config, CUfunction function, void **parameters) {
  struct fake_launch *const it = &fake_driver.launch;
  *it = (struct fake_launch){.function = function,
                             .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                             .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
                             .shared_bytes = config->sharedMemBytes,
                             .stream = config->hStream};
  const size_t bytes = parameter_bytes_of(function);
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

CUresult fake_launch_kernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                            unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                            CUstream stream, void **parameters, void **extra) {
  ENTER(LaunchKernel);
  if (fake_current() < 0) return CUDA_ERROR_INVALID_CONTEXT;
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

CUresult fake_launch_kernel_ex(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra) {
  ENTER(LaunchKernelEx);
  if (fake_current() < 0) return CUDA_ERROR_INVALID_CONTEXT;
  return extra ? CUDA_ERROR_INVALID_VALUE : remember(config, function, parameters);
}

CUresult fake_library_get_module(CUmodule *module, CUlibrary library) {
  ENTER(LibraryGetModule);
  const CUresult read = fake_driver.eager ? CUDA_SUCCESS : read_image();
  *module = (CUmodule)library;
  return read;
}

CUresult fake_library_get_global(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name) {
  ENTER(LibraryGetGlobal);
  *address = (CUdeviceptr)(uintptr_t)fake_driver.global;
  *bytes = fake_driver.global_bytes;
  note_name(name);
  return library && strcmp(name, "absent") != 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult fake_max_active_blocks(int *blocks, CUfunction function, int threads, size_t shared_bytes) {
  ENTER(OccupancyMaxActiveBlocksPerMultiprocessor);
  *blocks = threads ? (int)(2048 / (unsigned)threads) : 0;
  return function && shared_bytes < 1u << 20 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult fake_max_active_clusters(int *clusters, CUfunction function, const CUlaunchConfig *config) {
  ENTER(OccupancyMaxActiveClusters);
  *clusters = 33;
  return function && config->numAttrs ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult fake_max_potential_block_size(int *grid, int *block, CUfunction function, CUoccupancyB2DSize of_block,
                                       size_t shared_bytes, int limit) {
  ENTER(OccupancyMaxPotentialBlockSize);
  *grid = 264;
  *block = 512;
  return function && !of_block && !limit && shared_bytes < 1u << 20 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
