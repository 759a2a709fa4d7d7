#include <string.h>

#include "base/error.h"
#include "base/struct_intake.h"
#include "runtime/runtime_internal.h"
#include "runtime/runtime_state.h"

/* CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": the same for every device. */
#define GRID_X_MAX         0x7fffffffu
#define GRID_YZ_MAX        65535u
#define BLOCK_XY_MAX       1024u
#define BLOCK_Z_MAX        64u
#define BLOCK_THREADS_MAX  1024u
#define CLUSTER_BLOCKS_MAX 8u /* what every device with clusters can do */
#define CLUSTER_CAPABILITY 90u

static const uint32_t grid_max[3] = {GRID_X_MAX, GRID_YZ_MAX, GRID_YZ_MAX};
static const uint32_t block_max[3] = {BLOCK_XY_MAX, BLOCK_XY_MAX, BLOCK_Z_MAX};
static const uint32_t cluster_max[3] = {CLUSTER_BLOCKS_MAX, CLUSTER_BLOCKS_MAX, CLUSTER_BLOCKS_MAX};

/* A launch with its zeros resolved. */
struct shape {
  uint32_t grid[3], block[3], cluster[3];
  uint32_t threads;        /* per block */
  uint32_t cluster_blocks; /* 0: no cluster */
};

static kjit_status resolve(const char *name, const uint32_t given[3], const uint32_t max[3], uint32_t out[3],
                           kjit_error *error) {
  for (int i = 0; i < 3; i++) {
    out[i] = given[i] ? given[i] : 1;
    if (out[i] <= max[i]) continue;
    return error_set(error, KJIT_ERR_INVALID_ARG, "launch.%s[%d]: %u; CUDA allows at most %u", name, i, out[i], max[i]);
  }
  return KJIT_OK;
}

static kjit_status resolve_cluster(const kjit_launch *launch, struct shape *shape, kjit_error *error) {
  const kjit_status status = resolve("cluster", launch->cluster, cluster_max, shape->cluster, error);
  if (status != KJIT_OK) return status;
  shape->cluster_blocks = shape->cluster[0] * shape->cluster[1] * shape->cluster[2];
  if (shape->cluster_blocks > CLUSTER_BLOCKS_MAX) {
    return error_set(error, KJIT_ERR_INVALID_ARG, "launch.cluster: %u x %u x %u = %u blocks; at most %u are portable",
                     shape->cluster[0], shape->cluster[1], shape->cluster[2], shape->cluster_blocks,
                     CLUSTER_BLOCKS_MAX);
  }
  for (int i = 0; i < 3; i++) {
    if (shape->grid[i] % shape->cluster[i] == 0) continue;
    return error_set(error, KJIT_ERR_INVALID_ARG, "launch.grid[%d]: %u; must be a multiple of launch.cluster[%d], %u",
                     i, shape->grid[i], i, shape->cluster[i]);
  }
  return KJIT_OK;
}

static kjit_status resolve_shape(const kjit_launch *launch, struct shape *shape, kjit_error *error) {
  kjit_status status = resolve("grid", launch->grid, grid_max, shape->grid, error);
  if (status == KJIT_OK) status = resolve("block", launch->block, block_max, shape->block, error);
  if (status != KJIT_OK) return status;
  shape->threads = shape->block[0] * shape->block[1] * shape->block[2];
  if (shape->threads > BLOCK_THREADS_MAX) {
    return error_set(error, KJIT_ERR_INVALID_ARG, "launch.block: %u x %u x %u = %u threads; CUDA allows at most %u",
                     shape->block[0], shape->block[1], shape->block[2], shape->threads, BLOCK_THREADS_MAX);
  }
  shape->cluster_blocks = 0;
  if (!(launch->cluster[0] | launch->cluster[1] | launch->cluster[2])) return KJIT_OK;
  return resolve_cluster(launch, shape, error);
}

static kjit_status check_args(const struct kjit_kernel *kernel, const void *args, size_t args_bytes,
                              kjit_error *error) {
  if (args_bytes && !args) return error_invalid(error, "args", "must not be NULL when args_bytes is not 0");
  if (kernel->parameter_count == KERNEL_PARAMETERS_UNKNOWN) return KJIT_OK;
  if (kernel->parameter_count > 1) {
    return error_set(error, KJIT_ERR_INVALID_ARG,
                     "args: kernel \"%.80s\" has several parameters; give it one struct passed by value", kernel->name);
  }
  if (args_bytes != kernel->parameter_bytes) {
    return error_set(error, KJIT_ERR_INVALID_ARG, "args_bytes: %zu; the parameter of kernel \"%.80s\" has %zu",
                     args_bytes, kernel->name, kernel->parameter_bytes);
  }
  return KJIT_OK;
}

static kjit_status check_device(const struct kjit_kernel *kernel, int32_t ordinal, const struct shape *shape,
                                kjit_error *error) {
  const uint32_t max_threads = kernel->on_device[ordinal].max_threads;
  if (shape->threads > max_threads) {
    return error_set(error, KJIT_ERR_UNSUPPORTED,
                     "launch.block: %u threads; kernel \"%.80s\" allows at most %u on device %d, by its registers and "
                     "__launch_bounds__",
                     shape->threads, kernel->name, max_threads, ordinal);
  }
  if (!shape->cluster_blocks) return KJIT_OK;
  const struct device *device;
  const kjit_status status = gpu_device(kernel->gpu, ordinal, &device, error);
  if (status != KJIT_OK) return status;
  if (device->capability < CLUSTER_CAPABILITY) {
    return error_set(error, KJIT_ERR_UNSUPPORTED, "launch.cluster: device %d (%s) has no clusters; sm_%u and later do",
                     ordinal, device->info.arch, CLUSTER_CAPABILITY);
  }
  return KJIT_OK;
}

static kjit_status report_launch(const struct kjit_kernel *kernel, CUresult result, kjit_error *error) {
  return driver_fail(kernel->cu, KJIT_ERR_DRIVER, result, error, "launching kernel \"%.80s\"", kernel->name);
}

/* CUfunction's place may be taken by a CUkernel ("cuLaunchKernel" in the driver API manual): the driver finds the
 * function of the current context itself, which stays right when contexts come and go. */
kjit_status runtime_kernel_enqueue(const kjit_kernel *kernel, const uint32_t grid[3], const uint32_t block[3],
                                   uint32_t dynamic_shared_bytes, const void *parameters, CUstream stream,
                                   kjit_error *error) {
  void *pointers[] = {(void *)(uintptr_t)parameters};
  const CUresult result = kernel->cu->LaunchKernel((CUfunction)kernel->handle, grid[0], grid[1], grid[2], block[0],
                                                   block[1], block[2], dynamic_shared_bytes, stream, pointers, NULL);
  return result == CUDA_SUCCESS ? KJIT_OK : report_launch(kernel, result, error);
}

static kjit_status enqueue_cluster(const struct kjit_kernel *kernel, const struct shape *shape, uint32_t shared_bytes,
                                   const void *args, CUstream stream, kjit_error *error) {
  CUlaunchAttribute cluster = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
  cluster.value.clusterDim.x = shape->cluster[0];
  cluster.value.clusterDim.y = shape->cluster[1];
  cluster.value.clusterDim.z = shape->cluster[2];
  const CUlaunchConfig config = {.gridDimX = shape->grid[0],
                                 .gridDimY = shape->grid[1],
                                 .gridDimZ = shape->grid[2],
                                 .blockDimX = shape->block[0],
                                 .blockDimY = shape->block[1],
                                 .blockDimZ = shape->block[2],
                                 .sharedMemBytes = shared_bytes,
                                 .hStream = stream,
                                 .attrs = &cluster,
                                 .numAttrs = 1};
  void *pointers[] = {(void *)(uintptr_t)args};
  const CUresult result = kernel->cu->LaunchKernelEx(&config, (CUfunction)kernel->handle, pointers, NULL);
  return result == CUDA_SUCCESS ? KJIT_OK : report_launch(kernel, result, error);
}

static kjit_status launch_checked(struct kjit_kernel *kernel, const kjit_launch *launch, const void *args,
                                  size_t args_bytes, CUstream stream, kjit_error *error) {
  struct shape shape = {.grid = {1, 1, 1}, .block = {1, 1, 1}, .cluster = {1, 1, 1}, .threads = 1};
  int32_t ordinal = -1;
  const uint32_t shared_bytes = launch->dynamic_shared_bytes;
  kjit_status status = resolve_shape(launch, &shape, error);
  if (status == KJIT_OK) status = check_args(kernel, args, args_bytes, error);
  if (status == KJIT_OK) status = gpu_current(kernel->gpu, &ordinal, error);
  if (status == KJIT_OK) status = runtime_kernel_prepare(kernel, ordinal, shared_bytes, error);
  if (status == KJIT_OK) status = check_device(kernel, ordinal, &shape, error);
  if (status != KJIT_OK) return status;
  status = shape.cluster_blocks
               ? enqueue_cluster(kernel, &shape, shared_bytes, args, stream, error)
               : runtime_kernel_enqueue(kernel, shape.grid, shape.block, shared_bytes, args, stream, error);
  if (status == KJIT_OK) runtime_count_launch(kernel->runtime);
  return status;
}

kjit_status kjit_kernel_launch(kjit_kernel *kernel, const kjit_launch *launch, const void *args, size_t args_bytes,
                               CUstream stream, kjit_error *error) {
  error_clear(error);
  if (!kernel) return error_invalid(error, "kernel", "must not be NULL");
  if (launch && launch->struct_size == sizeof *launch) {
    return launch_checked(kernel, launch, args, args_bytes, stream, error);
  }
  kjit_launch known;
  const kjit_status status = struct_intake(&known, sizeof known, launch, sizeof known, "launch", error);
  if (status != KJIT_OK) return status;
  return launch_checked(kernel, &known, args, args_bytes, stream, error);
}
