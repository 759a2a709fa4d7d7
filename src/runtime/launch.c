/* Launching. kjit_kernel_launch() checks everything and hands the arguments' addresses to the driver; the families'
 * runtime_kernel_enqueue() checks nothing, because the families have done so. Nothing is locked, and nothing is
 * allocated except for kernels with more parameters than have room on the stack. Any thread. */
#include "base/error.h"

#include "runtime/launch_check.h"
#include "runtime/runtime_internal.h"
#include "runtime/runtime_state.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* How many parameters' addresses have room on the stack: more than any kernel that a person wrote has. */
#define ARGS_ON_STACK 64

/* Checked before anything is allocated for the arguments or read of them. */
static kjit_status check_count(const struct kjit_kernel *kernel, size_t count, kjit_error *error) {
  if (kernel->parameter_bytes ? count == kernel->parameter_count : count <= KERNEL_PARAMETERS_MAX) return KJIT_OK;
  if (!kernel->parameter_bytes)
    return error_set(error, KJIT_ERR_INVALID_ARG, "arg_count: %zu; a kernel has at most %d parameters", count,
                     KERNEL_PARAMETERS_MAX);
  return error_set(error, KJIT_ERR_INVALID_ARG, "arg_count: %zu; kernel \"%.80s\" has %zu parameter%s", count,
                   kernel->name, kernel->parameter_count, kernel->parameter_count == 1 ? "" : "s");
}

static kjit_status refuse_arg(const struct kjit_kernel *kernel, const kjit_arg *args, size_t index, kjit_error *error) {
  if (!args[index].value)
    return error_set(error, KJIT_ERR_INVALID_ARG, "args[%zu].value: must not be NULL: it is where the value lies",
                     index);
  return error_set(error, KJIT_ERR_INVALID_ARG, "args[%zu].bytes: %zu; parameter %zu of kernel \"%.80s\" has %u", index,
                   args[index].bytes, index, kernel->name, kernel->parameter_bytes[index]);
}

/* Collect the arguments' addresses. The driver's interface wants them without const, but only reads the values. */
static kjit_status take_args(const struct kjit_kernel *kernel, const kjit_arg *args, size_t count, void **pointers,
                             kjit_error *error) {
  const uint32_t *const sizes = kernel->parameter_bytes;
  for (size_t i = 0; i < count; i++) {
    if (!args[i].value || (sizes && args[i].bytes != sizes[i])) return refuse_arg(kernel, args, i, error);
    pointers[i] = (void *)(uintptr_t)args[i].value;
  }
  return KJIT_OK;
}

static kjit_status report_launch(const struct kjit_kernel *kernel, CUresult result, kjit_error *error) {
  return gpu_launch_failed(kernel->gpu, result, kernel->name, error);
}

/* Enqueue. A CUkernel may be passed where a CUfunction is wanted ("cuLaunchKernel" in the driver API manual): the
 * driver then finds the function of the current context itself, which stays right when contexts come and go. */
static kjit_status enqueue(const struct kjit_kernel *kernel, const uint32_t grid[3], const uint32_t block[3],
                           uint32_t shared_bytes, void **pointers, CUstream stream, kjit_error *error) {
  const CUresult result = kernel->cu->LaunchKernel((CUfunction)kernel->handle, grid[0], grid[1], grid[2], block[0],
                                                   block[1], block[2], shared_bytes, stream, pointers, NULL);
  return result == CUDA_SUCCESS ? KJIT_OK : report_launch(kernel, result, error);
}

kjit_status runtime_kernel_enqueue(const kjit_kernel *kernel, const uint32_t grid[3], const uint32_t block[3],
                                   uint32_t dynamic_shared_bytes, const void *parameters, CUstream stream,
                                   kjit_error *error) {
  void *pointers[] = {(void *)(uintptr_t)parameters};
  return enqueue(kernel, grid, block, dynamic_shared_bytes, pointers, stream, error);
}

static kjit_status enqueue_with(const struct kjit_kernel *kernel, const kjit_launch *launch,
                                const struct launch_shape *shape, void **pointers, CUstream stream, kjit_error *error) {
  CUlaunchAttribute attributes[LAUNCH_ATTRIBUTES_MAX];
  const unsigned count = launch_attributes(launch, shape, attributes);
  const CUlaunchConfig config = launch_config(launch, shape, stream, attributes, count);
  const CUresult result = kernel->cu->LaunchKernelEx(&config, (CUfunction)kernel->handle, pointers, NULL);
  return result == CUDA_SUCCESS ? KJIT_OK : report_launch(kernel, result, error);
}

kjit_status runtime_kernel_enqueue_behind(const kjit_kernel *kernel, const uint32_t grid[3], const uint32_t block[3],
                                          uint32_t dynamic_shared_bytes, const void *parameters, bool is_dependent,
                                          CUstream stream, kjit_error *error) {
  if (!is_dependent)
    return runtime_kernel_enqueue(kernel, grid, block, dynamic_shared_bytes, parameters, stream, error);
  CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                 .value = {.programmaticStreamSerializationAllowed = 1}};
  const CUlaunchConfig config = {.gridDimX = grid[0],
                                 .gridDimY = grid[1],
                                 .gridDimZ = grid[2],
                                 .blockDimX = block[0],
                                 .blockDimY = block[1],
                                 .blockDimZ = block[2],
                                 .sharedMemBytes = dynamic_shared_bytes,
                                 .hStream = stream,
                                 .attrs = &attribute,
                                 .numAttrs = 1};
  void *pointers[] = {(void *)(uintptr_t)parameters};
  const CUresult result = kernel->cu->LaunchKernelEx(&config, (CUfunction)kernel->handle, pointers, NULL);
  return result == CUDA_SUCCESS ? KJIT_OK : report_launch(kernel, result, error);
}

/* Streams under capture take them from CUDA 12.3 on; the drivers of 12.4 are the first that are no previews of that. */
bool runtime_has_dependents(const kjit_device_info *device) {
  return strtoul(device->arch + strlen("sm_"), NULL, 10) >= 90 && device->driver_version >= 12040;
}

/* Note that a kernel was launched. One that was captured stays loaded, because its graph may run at any later time. The
 * legacy stream, NULL, cannot be captured. */
static void note_use(const struct kjit_kernel *kernel, int32_t ordinal, CUstream stream) {
  struct kjit_module *const module = kernel->module;
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  if (atomic_load_explicit(&module->stays, memory_order_relaxed)) return;
  if (!atomic_load_explicit(&module->launched_on[ordinal], memory_order_relaxed))
    atomic_store_explicit(&module->launched_on[ordinal], 1, memory_order_relaxed);
  if (stream &&
      (kernel->cu->StreamIsCapturing(stream, &capture) != CUDA_SUCCESS || capture != CU_STREAM_CAPTURE_STATUS_NONE))
    atomic_store_explicit(&module->stays, 1, memory_order_relaxed);
}

static bool is_simple(const kjit_launch *launch, const struct launch_shape *shape) {
  return !(shape->cluster_blocks | launch->flags | launch->cluster_policy | launch->sync_domain |
           launch->attribute_count);
}

static kjit_status launch_with(struct kjit_kernel *kernel, const kjit_launch *launch, const kjit_arg *args,
                               size_t arg_count, void **pointers, CUstream stream, kjit_error *error) {
  struct launch_shape shape;
  int32_t ordinal = -1;
  kjit_status status = launch_check_shape(launch, &shape, error);
  if (status == KJIT_OK) status = take_args(kernel, args, arg_count, pointers, error);
  if (status == KJIT_OK) status = gpu_current_of_launch(kernel->gpu, &ordinal, error);
  if (status == KJIT_OK) status = launch_check_device(kernel, ordinal, launch, &shape, error);
  if (status != KJIT_OK) return status;
  note_use(kernel, ordinal, stream);
  status = is_simple(launch, &shape)
               ? enqueue(kernel, shape.grid, shape.block, launch->dynamic_shared_bytes, pointers, stream, error)
               : enqueue_with(kernel, launch, &shape, pointers, stream, error);
  if (status == KJIT_OK) runtime_count_launch(kernel->runtime);
  return status;
}

kjit_status kjit_kernel_launch(kjit_kernel *kernel, const kjit_launch *launch, const kjit_arg *args, size_t arg_count,
                               CUstream stream, kjit_error *error) {
  kjit_launch local;
  void *few[ARGS_ON_STACK];
  error_clear(error);
  if (!kernel) return error_invalid(error, "kernel", "must not be NULL");
  if (arg_count && !args) return error_invalid(error, "args", "must not be NULL when arg_count is not 0");
  const kjit_launch *const known = launch_intake(launch, &local, error);
  if (!known) return error ? (kjit_status)error->status : KJIT_ERR_INVALID_ARG;
  kjit_status status = check_count(kernel, arg_count, error);
  if (status != KJIT_OK) return status;
  if (arg_count <= ARGS_ON_STACK) return launch_with(kernel, known, args, arg_count, few, stream, error);
  void **const many = mem_alloc_array(&kernel->runtime->mem, arg_count, sizeof *many);
  if (!many) return error_no_memory(error);
  status = launch_with(kernel, known, args, arg_count, many, stream, error);
  mem_free(&kernel->runtime->mem, many);
  return status;
}
