#include "runtime/kernel.h"

#include "base/error.h"
#include "jit/compile/cubin.h"

/* From the image where it says so: asking the driver means asking for one parameter too many, and a user's memory
 * checker would report that call. */
static CUresult read_parameters(struct kjit_kernel *kernel, const kjit_artifact_info *info) {
  const struct driver_api *const cu = kernel->cu;
  struct cubin_kernel said;
  kernel->parameter_count = KERNEL_PARAMETERS_UNKNOWN;
  kernel->parameter_bytes = 0;
  if (cubin_find_kernel(info->cubin, info->cubin_bytes, kernel->name, &said) && said.has_info) {
    kernel->parameter_count = said.parameter_count;
    kernel->parameter_bytes = said.parameter_bytes;
    return CUDA_SUCCESS;
  }
  if (!cu->KernelGetParamInfo) return CUDA_SUCCESS;
  size_t count = 0;
  for (; count < 2; count++) {
    size_t offset, bytes;
    const CUresult result = cu->KernelGetParamInfo(kernel->handle, count, &offset, &bytes);
    if (result == CUDA_ERROR_INVALID_VALUE) break; /* past the last */
    if (result != CUDA_SUCCESS) return result;
    if (!count) kernel->parameter_bytes = bytes;
  }
  kernel->parameter_count = count;
  return CUDA_SUCCESS;
}

static kjit_status refuse(const struct kjit_kernel *kernel, CUresult result, kjit_error *error) {
  return driver_fail(kernel->cu, KJIT_ERR_DRIVER, result, error, "the cubin of kernel \"%.80s\" for %s was refused",
                     kernel->name, kernel->target.name);
}

/* With lazy loading, the default, the library call takes anything, and the first of these reads the image. Asking for
 * the context's function brings the code onto the device now, so that a refusal is met here and not by the first
 * launch, and a later stream capture finds it loaded. */
static kjit_status look_up(struct kjit_kernel *kernel, const kjit_artifact_info *info, kjit_error *error) {
  const struct driver_api *const cu = kernel->cu;
  CUfunction function;
  CUresult result = cu->LibraryGetKernel(&kernel->handle, kernel->library, kernel->name);
  if (result == CUDA_ERROR_NOT_FOUND) {
    return driver_fail(cu, KJIT_ERR_DRIVER, result, error, "the cubin for %s has no kernel \"%.80s\"",
                       kernel->target.name, kernel->name);
  }
  if (result == CUDA_SUCCESS) result = cu->KernelGetFunction(&function, kernel->handle);
  if (result != CUDA_SUCCESS) return refuse(kernel, result, error);
  result = read_parameters(kernel, info);
  if (result == CUDA_SUCCESS) return KJIT_OK;
  return driver_fail(cu, KJIT_ERR_DRIVER, result, error, "the parameters of kernel \"%.80s\" could not be read",
                     kernel->name);
}

kjit_status kernel_load(struct kjit_kernel *kernel, kjit_artifact *artifact, const struct target *target,
                        kjit_error *error) {
  kjit_artifact_info info = {.struct_size = sizeof info};
  kjit_status status = kjit_artifact_get_info(artifact, &info, error);
  if (status != KJIT_OK) return status;
  kernel->name = info.entry;
  kernel->target = *target;
  const CUresult result = kernel->cu->LibraryLoadData(&kernel->library, info.cubin, NULL, NULL, 0, NULL, NULL, 0);
  if (result != CUDA_SUCCESS) kernel->library = NULL;
  status = result == CUDA_SUCCESS ? look_up(kernel, &info, error) : refuse(kernel, result, error);
  if (status == KJIT_OK) {
    kernel->artifact = kjit_artifact_retain(artifact);
  } else {
    kernel_unload(kernel);
  }
  return status;
}

_Bool kernel_load_was_refused(const kjit_error *error) {
  if (error->cause_domain != KJIT_CAUSE_CUDA) return 0;
  switch ((CUresult)error->cause) {
  case CUDA_ERROR_INVALID_IMAGE:
  case CUDA_ERROR_NO_BINARY_FOR_GPU:
  case CUDA_ERROR_INVALID_PTX: /* what does not begin as a cubin is read as PTX */
  case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
  case CUDA_ERROR_INVALID_SOURCE:
    return 1;
  default:
    return 0;
  }
}

/* The driver's answer is not looked at: at the end of a process it may be gone before us. */
void kernel_unload(struct kjit_kernel *kernel) {
  if (kernel->library && !gpu_is_forked(kernel->gpu)) (void)kernel->cu->LibraryUnload(kernel->library);
  kjit_artifact_release(kernel->artifact);
  kernel->library = NULL;
  kernel->handle = NULL;
  kernel->artifact = NULL;
  kernel->name = NULL;
}
