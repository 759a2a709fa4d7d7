/* The public functions that load: a request becomes a module, a module gives kernels, and each of both holds the
 * module. */
#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "jit/builder_custom.h"
#include "jit/cubin/cubin.h"
#include "runtime/runtime_state.h"

/* Room for the list of names in a message. */
#define NAMES_BYTES 200

/* The architecture of the current device, with its own features, because the code is for this card alone. */
static kjit_status current_arch(kjit_runtime *runtime, const char **arch, kjit_error *error) {
  int32_t ordinal;
  const struct device *device;
  kjit_status status = gpu_current(&runtime->gpu, &ordinal, error);
  if (status == KJIT_OK) status = gpu_device(&runtime->gpu, ordinal, &device, error);
  if (status == KJIT_OK) *arch = device->info.arch_specific;
  return status;
}

/* What a call wants of the module. It travels through builder_custom() to get_wanted(), which is called with the
 * finished request. */
struct wanted_module {
  kjit_runtime *runtime;
  bool needs_entry; /* the request must name a kernel, which is looked up at once */
  struct kjit_module **module;
  struct kjit_kernel **kernel; /* NULL when the module alone is wanted */
};

/* Load the module and look the kernel up. On failure the caller gets neither, so that there is nothing to release. */
static kjit_status get_wanted(void *user, const struct jit_request *request, kjit_error *error) {
  const struct wanted_module *wanted = user;
  const char *const entry = request->entry;
  if (request->flags & (KJIT_BUILD_KEY_ONLY | KJIT_BUILD_OBJECT))
    return error_invalid(error, "request.flags", "KJIT_BUILD_KEY_ONLY and KJIT_BUILD_OBJECT give no kernel");
  if (wanted->needs_entry && !*entry)
    return error_invalid(error, "request.entry", "must name the kernel; kjit_module_get() takes a request without");
  kjit_status status = module_get(wanted->runtime, request, *entry ? entry : NULL, wanted->module, error);
  if (status != KJIT_OK || !wanted->kernel) return status;
  status = module_find_kernel(*wanted->module, entry, wanted->kernel, error);
  if (status == KJIT_OK) return status;
  kjit_module_release(*wanted->module);
  *wanted->module = NULL;
  return status;
}

static kjit_status get(const struct wanted_module *wanted, const kjit_build_request *request, kjit_error *error) {
  const char *arch = NULL;
  if (!wanted->runtime) return error_invalid(error, "runtime", "must not be NULL");
  if (!request) return error_invalid(error, "request", "must not be NULL");
  const kjit_status status = current_arch(wanted->runtime, &arch, error);
  if (status != KJIT_OK) return status;
  return builder_custom(wanted->runtime->builder, request, NULL, arch, get_wanted, (void *)(uintptr_t)wanted, error);
}

kjit_status kjit_module_get(kjit_runtime *runtime, const kjit_build_request *request, kjit_module **out,
                            kjit_error *error) {
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  const struct wanted_module wanted = {runtime, 0, out, NULL};
  return get(&wanted, request, error);
}

kjit_module *kjit_module_retain(kjit_module *module) {
  if (module) module_table_hold(&module->runtime->modules, module);
  return module;
}

void kjit_module_release(kjit_module *module) {
  if (module) module_table_give_back(&module->runtime->modules, module);
}

const kjit_artifact *kjit_module_artifact(const kjit_module *module) {
  return module ? module->artifact : NULL;
}

kjit_status kjit_kernel_get(kjit_runtime *runtime, const kjit_build_request *request, kjit_kernel **out,
                            kjit_error *error) {
  struct kjit_module *module = NULL;
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  const struct wanted_module wanted = {runtime, 1, &module, out};
  return get(&wanted, request, error);
}

/* A kernel has no count of its own: it lives in its module, so references to it are references to the module. */
kjit_kernel *kjit_kernel_retain(kjit_kernel *kernel) {
  if (kernel) (void)kjit_module_retain(kernel->module);
  return kernel;
}

void kjit_kernel_release(kjit_kernel *kernel) {
  if (kernel) kjit_module_release(kernel->module);
}

const kjit_artifact *kjit_kernel_artifact(const kjit_kernel *kernel) {
  return kernel ? kernel->module->artifact : NULL;
}

int32_t kjit_kernel_parameter_count(const kjit_kernel *kernel) {
  return kernel && kernel->parameter_bytes ? (int32_t)kernel->parameter_count : -1;
}

uint32_t kjit_kernel_parameter_bytes(const kjit_kernel *kernel, uint32_t index) {
  return kernel && kernel->parameter_bytes && index < kernel->parameter_count ? kernel->parameter_bytes[index] : 0;
}

/* The error for an unknown name; it lists the names that the module has. */
static kjit_status refuse_name(const struct kjit_module *module, const char *name, kjit_error *error) {
  kjit_artifact_info info = {.struct_size = sizeof info};
  struct text list;
  text_init(&list, &module->runtime->mem, (size_t)1 << 20);
  if (kjit_artifact_get_info(module->artifact, &info, NULL) == KJIT_OK)
    cubin_list_kernels(info.cubin, info.cubin_bytes, &list);
  const kjit_status status =
      error_set(error, KJIT_ERR_NOT_FOUND, "name: the module has no kernel \"%.120s\"; it has %.*s%s", name,
                NAMES_BYTES, list.failed ? "too many to list" : list.data, list.bytes > NAMES_BYTES ? "…" : "");
  text_finish(&list);
  return status;
}

/* The driver's own error for an unknown name says neither which name nor which there are, so it is replaced; every
 * other error is passed on as it is. The kernel that is returned holds the module. */
kjit_status kjit_module_get_kernel(kjit_module *module, const char *name, kjit_kernel **out, kjit_error *error) {
  kjit_error found;
  error_clear(&found);
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  if (!module) return error_invalid(error, "module", "must not be NULL");
  if (!name || !*name) return error_invalid(error, "name", "must name a kernel");
  const kjit_status status = module_find_kernel(module, name, out, &found);
  if (status == KJIT_OK) {
    module_table_hold(&module->runtime->modules, module);
    return KJIT_OK;
  }
  if (found.cause_domain == KJIT_CAUSE_CUDA && found.cause == CUDA_ERROR_NOT_FOUND)
    return refuse_name(module, name, error);
  if (error) *error = found;
  return status;
}
