/* kjit_kernel_get_occupancy() and kjit_kernel_get_handles(): how many blocks of a launch a device holds at a time, and
 * the driver's own handles of a kernel. Any thread; the driver is asked each time. */
#include "base/error.h"
#include "base/struct_intake.h"
#include "runtime/launch_check.h"
#include "runtime/runtime_state.h"

static kjit_status fail(const struct kjit_kernel *kernel, CUresult result, const char *call, kjit_error *error) {
  return driver_fail(kernel->cu, KJIT_ERR_DRIVER, result, error, "kernel \"%.80s\": %s", kernel->name, call);
}

/* The driver's counts are ints; a negative one would become billions of blocks. */
static uint32_t at_least_zero(int value) {
  return value > 0 ? (uint32_t)value : 0;
}

/* For launches with clusters alone; the others have none to count. */
static kjit_status ask_clusters(const struct kjit_kernel *kernel, CUfunction function, const kjit_launch *launch,
                                const struct launch_shape *shape, kjit_occupancy *out, kjit_error *error) {
  CUlaunchAttribute attributes[LAUNCH_ATTRIBUTES_MAX];
  const unsigned count = launch_attributes(launch, shape, attributes);
  const CUlaunchConfig config = launch_config(launch, shape, NULL, attributes, count);
  int clusters = 0;
  const CUresult result = kernel->cu->OccupancyMaxActiveClusters(&clusters, function, &config);
  out->clusters = at_least_zero(clusters);
  return result == CUDA_SUCCESS ? KJIT_OK : fail(kernel, result, "cuOccupancyMaxActiveClusters", error);
}

static kjit_status ask(const struct kjit_kernel *kernel, const kjit_launch *launch, const struct launch_shape *shape,
                       kjit_occupancy *out, kjit_error *error) {
  const struct driver_api *const cu = kernel->cu;
  const size_t shared_bytes = launch->dynamic_shared_bytes;
  int blocks = 0, grid = 0, block = 0;
  CUfunction function;
  CUresult result = cu->KernelGetFunction(&function, kernel->handle);
  if (result != CUDA_SUCCESS) return fail(kernel, result, "cuKernelGetFunction", error);
  result = cu->OccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, (int)shape->threads, shared_bytes);
  if (result != CUDA_SUCCESS) return fail(kernel, result, "cuOccupancyMaxActiveBlocksPerMultiprocessor", error);
  result = cu->OccupancyMaxPotentialBlockSize(&grid, &block, function, NULL, shared_bytes, 0);
  if (result != CUDA_SUCCESS) return fail(kernel, result, "cuOccupancyMaxPotentialBlockSize", error);
  out->blocks = at_least_zero(blocks);
  out->grid_blocks = at_least_zero(grid);
  out->block_threads = at_least_zero(block);
  return shape->cluster_blocks ? ask_clusters(kernel, function, launch, shape, out, error) : KJIT_OK;
}

/* The launch is checked as for a launch, so that a shape that could not be launched gets the same sentence here, and
 * the shared memory's limit is raised before the driver counts with it. */
kjit_status kjit_kernel_get_occupancy(kjit_kernel *kernel, const kjit_launch *launch, kjit_occupancy *occupancy,
                                      kjit_error *error) {
  kjit_launch local;
  struct launch_shape shape;
  int32_t ordinal = -1;
  kjit_occupancy out = {.struct_size = sizeof out};
  error_clear(error);
  if (!kernel) return error_invalid(error, "kernel", "must not be NULL");
  const struct driver_api *const cu = kernel->cu;
  if (!cu->OccupancyMaxActiveBlocksPerMultiprocessor || !cu->OccupancyMaxActiveClusters ||
      !cu->OccupancyMaxPotentialBlockSize)
    return error_set(error, KJIT_ERR_UNSUPPORTED, "the driver library has no functions for occupancy");
  const kjit_launch *const known = launch_intake(launch, &local, error);
  if (!known) return error ? (kjit_status)error->status : KJIT_ERR_INVALID_ARG;
  kjit_status status = launch_check_shape(known, &shape, error);
  if (status == KJIT_OK) status = gpu_current(kernel->gpu, &ordinal, error);
  if (status == KJIT_OK) status = launch_check_device(kernel, ordinal, known, &shape, error);
  if (status == KJIT_OK) status = ask(kernel, known, &shape, &out, error);
  return status == KJIT_OK ? struct_fill(occupancy, &out, sizeof out, "occupancy", error) : status;
}

/* The module stays loaded from here on, because nobody can tell when handles that were given out are used last. */
kjit_status kjit_kernel_get_handles(kjit_kernel *kernel, kjit_kernel_handles *handles, kjit_error *error) {
  kjit_kernel_handles out = {.struct_size = sizeof out};
  error_clear(error);
  if (!kernel) return error_invalid(error, "kernel", "must not be NULL");
  out.library = kernel->module->library;
  out.kernel = kernel->handle;
  CUresult result = kernel->cu->KernelGetFunction(&out.function, kernel->handle);
  if (result != CUDA_SUCCESS) return fail(kernel, result, "cuKernelGetFunction", error);
  if (kernel->cu->LibraryGetModule) result = kernel->cu->LibraryGetModule(&out.module, out.library);
  if (result != CUDA_SUCCESS) return fail(kernel, result, "cuLibraryGetModule", error);
  atomic_store_explicit(&kernel->module->stays, 1, memory_order_relaxed);
  return struct_fill(handles, &out, sizeof out, "handles", error);
}
