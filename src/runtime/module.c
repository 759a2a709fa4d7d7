/* Loading a cubin and finding kernels in it.
 *
 * module_load() gives the cubin to the driver as a library, which belongs to no context, so that one module serves all
 * devices of its architecture. module_find_kernel() looks a kernel up once and keeps its record in the module. Any
 * thread may do so: the record is made without a lock, and a thread that finds another's record in the end takes that.
 */
#include "runtime/module.h"

#include <string.h>

#include "base/error.h"
#include "jit/cubin/cubin.h"
#include "runtime/primary.h"

static kjit_status refuse(const struct kjit_module *module, const char *name, CUresult result, kjit_error *error) {
  return driver_fail(module->cu, KJIT_ERR_DRIVER, result, error, "the cubin of kernel \"%.80s\" for %s was refused",
                     name, module->target.name);
}

/* -- Parameters --------------------------------------------------------------------------------------------------- */

static kjit_status take_sizes(struct kjit_kernel *kernel, const uint32_t *sizes, size_t count, kjit_error *error) {
  kernel->parameter_bytes = mem_alloc_array(kernel->gpu->mem, count, sizeof *kernel->parameter_bytes);
  if (!kernel->parameter_bytes) return error_no_memory(error);
  if (count) memcpy(kernel->parameter_bytes, sizes, count * sizeof *sizes);
  kernel->parameter_count = count;
  return KJIT_OK;
}

static kjit_status ask_driver(struct kjit_kernel *kernel, uint32_t *sizes, kjit_error *error) {
  const struct driver_api *const cu = kernel->cu;
  size_t count = 0;
  if (!cu->KernelGetParamInfo) return KJIT_OK;
  for (; count < KERNEL_PARAMETERS_MAX; count++) {
    size_t offset, bytes;
    const CUresult result = cu->KernelGetParamInfo(kernel->handle, count, &offset, &bytes);
    if (result == CUDA_ERROR_INVALID_VALUE) break; /* past the last */
    if (result != CUDA_SUCCESS) {
      return driver_fail(cu, KJIT_ERR_DRIVER, result, error, "the parameters of kernel \"%.80s\" could not be read",
                         kernel->name);
    }
    sizes[count] = (uint32_t)bytes;
  }
  return take_sizes(kernel, sizes, count, error);
}

/* Read the sizes of the parameters, from the table inside the cubin if it has one. cuKernelGetParamInfo() has to be
 * called until it fails, and compute-sanitizer reports that failure as the user's. */
static kjit_status read_parameters(struct kjit_kernel *kernel, const kjit_artifact *artifact, kjit_error *error) {
  kjit_artifact_info info = {.struct_size = sizeof info};
  struct cubin_kernel said;
  kernel->parameter_count = KERNEL_PARAMETERS_UNKNOWN;
  kjit_status status = kjit_artifact_get_info(artifact, &info, error);
  if (status != KJIT_OK) return status;
  uint32_t *const sizes = mem_alloc_array(kernel->gpu->mem, KERNEL_PARAMETERS_MAX, sizeof *sizes);
  if (!sizes) return error_no_memory(error);
  if (cubin_find_kernel(info.cubin, info.cubin_bytes, kernel->name, &said) && said.has_info &&
      cubin_parameter_sizes(info.cubin, info.cubin_bytes, kernel->name, sizes, KERNEL_PARAMETERS_MAX))
    status = take_sizes(kernel, sizes, said.parameter_count, error);
  else
    status = ask_driver(kernel, sizes, error);
  mem_free(kernel->gpu->mem, sizes);
  return status;
}

/* -- Kernels ------------------------------------------------------------------------------------------------------ */

static void kernel_destroy(struct kjit_kernel *kernel) {
  if (!kernel) return;
  const struct mem *const mem = kernel->gpu->mem;
  mem_free(mem, kernel->parameter_bytes);
  mem_free(mem, kernel->name);
  mem_free(mem, kernel);
}

static struct kjit_kernel *kernel_make(struct kjit_module *module, const char *name, size_t name_bytes) {
  const struct mem *const mem = module->gpu->mem;
  struct kjit_kernel *const kernel =
      mem_alloc(mem, sizeof *kernel + module->gpu->device_count * sizeof(struct kernel_on_device));
  if (!kernel) return NULL;
  kernel->module = module;
  kernel->runtime = module->runtime;
  kernel->gpu = module->gpu;
  kernel->cu = module->cu;
  kernel->name = mem_duplicate(mem, name, name_bytes);
  if (kernel->name) return kernel;
  kernel_destroy(kernel);
  return NULL;
}

/* Look a kernel up in the driver. With lazy loading, the default, loading a library accepts any bytes, and this is the
 * call that reads the image. Asking for the context's function brings the code onto the device now, so that a refusal
 * is met here and not by the first launch, and a later stream capture finds the code loaded. */
static kjit_status kernel_look_up(struct kjit_kernel *kernel, const kjit_artifact *artifact, kjit_error *error) {
  const struct kjit_module *const module = kernel->module;
  const struct driver_api *const cu = kernel->cu;
  CUfunction function;
  CUresult result = cu->LibraryGetKernel(&kernel->handle, module->library, kernel->name);
  if (result == CUDA_ERROR_NOT_FOUND) {
    return driver_fail(cu, KJIT_ERR_DRIVER, result, error, "the cubin for %s has no kernel \"%.80s\"",
                       module->target.name, kernel->name);
  }
  if (result == CUDA_SUCCESS) result = cu->KernelGetFunction(&function, kernel->handle);
  if (result != CUDA_SUCCESS) return refuse(module, kernel->name, result, error);
  return read_parameters(kernel, artifact, error);
}

static kjit_status kernel_create(struct kjit_module *module, const kjit_artifact *artifact, const char *name,
                                 struct kjit_kernel **out, kjit_error *error) {
  size_t bytes = strlen(name);
  *out = NULL;
  (void)artifact_lowered(artifact, name, &name, &bytes);
  struct kjit_kernel *const kernel = kernel_make(module, name, bytes);
  if (!kernel) return error_no_memory(error);
  const kjit_status status = kernel_look_up(kernel, artifact, error);
  if (status == KJIT_OK)
    *out = kernel;
  else
    kernel_destroy(kernel);
  return status;
}

/* Find a kernel that the module has a record of. The caller holds the table's lock. */
static struct kjit_kernel *kernel_known(const struct kjit_module *module, const char *name, size_t bytes) {
  struct kjit_kernel *kernel = module->kernels;
  while (kernel && (strncmp(kernel->name, name, bytes) != 0 || kernel->name[bytes]))
    kernel = kernel->next;
  return kernel;
}

kjit_status module_find_kernel(struct kjit_module *module, const char *name, struct kjit_kernel **out,
                               kjit_error *error) {
  pthread_mutex_t *const lock = module->lock;
  const char *lowered = name;
  size_t bytes = strlen(name);
  (void)artifact_lowered(module->artifact, name, &lowered, &bytes);
  pthread_mutex_lock(lock);
  *out = kernel_known(module, lowered, bytes);
  pthread_mutex_unlock(lock);
  if (*out) return KJIT_OK;
  struct kjit_kernel *made = NULL;
  const kjit_status status = kernel_create(module, module->artifact, name, &made, error);
  if (!made) return status;
  pthread_mutex_lock(lock);
  *out = kernel_known(module, lowered, bytes);
  if (!*out) {
    made->next = module->kernels;
    module->kernels = *out = made;
    made = NULL;
  }
  pthread_mutex_unlock(lock);
  kernel_destroy(made);
  return KJIT_OK;
}

/* -- Modules ------------------------------------------------------------------------------------------------------ */

static void unload(struct kjit_module *module) {
  /* The result is ignored, because at the end of a process the driver may be gone already. */
  if (module->library && !gpu_is_forked(module->gpu)) (void)module->cu->LibraryUnload(module->library);
  module->library = NULL;
}

/* Note the current context. One that was made by cuCtxCreate() cannot be waited for before an unload. */
static void note_context(struct kjit_module *module) {
  CUdevice device;
  if (module->cu->CtxGetDevice(&device) != CUDA_SUCCESS || !primary_is_current(module->cu, device))
    atomic_store_explicit(&module->stays, 1, memory_order_relaxed);
}

/* Without an entry, ask for something so that the driver reads the image now. */
static kjit_status read_image(struct kjit_module *module, kjit_error *error) {
  CUmodule unused;
  if (!module->cu->LibraryGetModule) return KJIT_OK;
  const CUresult result = module->cu->LibraryGetModule(&unused, module->library);
  return result == CUDA_SUCCESS ? KJIT_OK : refuse(module, "(all)", result, error);
}

kjit_status module_load(struct kjit_module *module, kjit_artifact *artifact, const struct target *target,
                        const char *entry, kjit_error *error) {
  kjit_artifact_info info = {.struct_size = sizeof info};
  kjit_status status = kjit_artifact_get_info(artifact, &info, error);
  if (status != KJIT_OK) return status;
  module->target = *target;
  const CUresult result = module->cu->LibraryLoadData(&module->library, info.cubin, NULL, NULL, 0, NULL, NULL, 0);
  if (result != CUDA_SUCCESS) {
    module->library = NULL;
    return refuse(module, entry ? entry : "(all)", result, error);
  }
  struct kjit_kernel *kernel = NULL;
  status = entry ? kernel_create(module, artifact, entry, &kernel, error) : read_image(module, error);
  if (status != KJIT_OK) {
    unload(module);
    return status;
  }
  module->artifact = kjit_artifact_retain(artifact);
  module->kernels = kernel; /* no other thread sees the list before the gate opens */
  note_context(module);
  return KJIT_OK;
}

bool module_load_was_refused(const kjit_error *error) {
  if (error->cause_domain != KJIT_CAUSE_CUDA) return false;
  switch ((CUresult)error->cause) {
  case CUDA_ERROR_INVALID_IMAGE:
  case CUDA_ERROR_NO_BINARY_FOR_GPU:
  case CUDA_ERROR_INVALID_PTX: /* what does not begin as a cubin is read as PTX */
  case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
  case CUDA_ERROR_INVALID_SOURCE:
    return true;
  default:
    return false;
  }
}

void module_destroy(struct kjit_module *module) {
  unload(module);
  for (struct kjit_kernel *kernel = module->kernels, *next; kernel; kernel = next) {
    next = kernel->next;
    kernel_destroy(kernel);
  }
  kjit_artifact_release(module->artifact);
  mem_free(module->gpu->mem, module);
}
