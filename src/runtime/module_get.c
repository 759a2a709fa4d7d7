/* From a request to a loaded module: build it, take its record, and load it if this thread is the first. A cubin that
 * the driver refuses is built again once. Any thread may come; those that want the same module wait at its gate. */
#include "base/error.h"
#include "base/nvtx.h"

#include "jit/artifact.h"
#include "runtime/runtime_internal.h"
#include "runtime/runtime_state.h"
#include <stdbool.h>

/* A cubin of another architecture would be refused by the driver too, but with a number instead of the names of
 * both. */
static kjit_status check_device_runs(kjit_runtime *runtime, const struct target *target, kjit_error *error) {
  int32_t ordinal;
  const struct device *device;
  kjit_status status = gpu_current(&runtime->gpu, &ordinal, error);
  if (status == KJIT_OK) status = gpu_device(&runtime->gpu, ordinal, &device, error);
  if (status != KJIT_OK || target_runs_on(target, device->capability)) return status;
  return error_set(error, KJIT_ERR_UNSUPPORTED, "arch: %s; the current device %d (%s) is %s and cannot run its code",
                   target->name, ordinal, device->info.name, device->info.arch);
}

/* True when the bytes may be stale. What this call compiled is what the compiler makes, so that another build would be
 * refused as well; all other bytes may have come through a file, even those in memory. */
static bool may_be_stale(const kjit_artifact *artifact) {
  kjit_artifact_info info = {.struct_size = sizeof info};
  return kjit_artifact_get_info(artifact, &info, NULL) == KJIT_OK && info.origin != KJIT_ORIGIN_BUILT;
}

/* Where building fails as well, the error is the driver's refusal, which came first, with the build's message behind
 * it. */
static kjit_status rebuild(struct kjit_module *module, const struct jit_request *request, const char *entry,
                           const kjit_error *refusal, kjit_error *error) {
  kjit_artifact *artifact = NULL;
  kjit_error reason;
  error_clear(&reason);
  kjit_status status = builder_get(module->runtime->builder, request, &artifact, &reason);
  if (status == KJIT_OK) {
    status = module_load(module, artifact, &request->target, entry, error);
  } else {
    status = error_set_cause(error, (kjit_status)refusal->status, (kjit_cause_domain)refusal->cause_domain,
                             refusal->cause, "%.240s; building it again: %.240s", refusal->message, reason.message);
  }
  kjit_artifact_release(artifact);
  return status;
}

/* Load a module whose gate this thread has entered. A cubin that the driver refuses is built again once in a runtime's
 * life. */
static kjit_status load(struct kjit_module *module, const struct jit_request *request, kjit_artifact *artifact,
                        const char *entry, kjit_error *error) {
  kjit_runtime *const runtime = module->runtime;
  kjit_error refusal;
  error_clear(&refusal);
  kjit_status status = module_load(module, artifact, &request->target, entry, &refusal);
  if (status != KJIT_OK && module_load_was_refused(&refusal) && !module->rebuilt && may_be_stale(artifact)) {
    log_write(&runtime->log, KJIT_LOG_WARNING, "%s; building it again", refusal.message);
    module->rebuilt = true;
    builder_forget(runtime->builder, artifact);
    status = rebuild(module, request, entry, &refusal, error);
  } else if (status != KJIT_OK && error) {
    *error = refusal;
  }
  if (status == KJIT_OK) atomic_fetch_add_explicit(&runtime->kernels_loaded, 1, memory_order_relaxed);
  return status;
}

/* The first thread through the gate loads; those that come meanwhile wait at it and find the module loaded. */
static kjit_status make_loaded(struct kjit_module *module, const struct jit_request *request, kjit_artifact *artifact,
                               const char *entry, kjit_error *error) {
  if (gate_is_open(&module->loaded)) return KJIT_OK;
  if (request->flags & KJIT_BUILD_RESIDENT_ONLY) {
    return error_set(error, KJIT_ERR_NOT_RESIDENT,
                     "kernel \"%.80s\" for %s is compiled but not loaded, and the call "
                     "forbade loading",
                     request->entry, request->target.name);
  }
  if (!gate_enter(&module->runtime->keeper, &module->loaded)) return KJIT_OK;
  const bool ranges = builder_tells_ranges(module->runtime->builder);
  if (ranges) nvtx_push("load", request->label, request->target.name);
  const kjit_status status = load(module, request, artifact, entry, error);
  if (ranges) nvtx_pop();
  gate_leave(&module->runtime->keeper, &module->loaded, status == KJIT_OK);
  return status;
}

/* Modules that nobody uses are unloaded after a load that succeeded, when the table has just grown. */
kjit_status module_get(kjit_runtime *runtime, const struct jit_request *request, const char *entry,
                       struct kjit_module **out, kjit_error *error) {
  *out = NULL;
  kjit_artifact *artifact = NULL;
  struct kjit_module *module = NULL;
  kjit_status status = check_device_runs(runtime, &request->target, error);
  if (status == KJIT_OK) status = builder_get(runtime->builder, request, &artifact, error);
  if (status != KJIT_OK) goto done;
  module = module_table_take(&runtime->modules, artifact_digest(artifact));
  if (!module) {
    status = error_no_memory(error);
    goto done;
  }
  status = make_loaded(module, request, artifact, entry, error);
  if (status == KJIT_OK)
    *out = module;
  else
    module_table_give_back(&runtime->modules, module);

done:
  kjit_artifact_release(artifact);
  const uint64_t unloaded = status == KJIT_OK ? module_table_trim(&runtime->modules) : 0;
  if (unloaded) atomic_fetch_add_explicit(&runtime->kernels_unloaded, unloaded, memory_order_relaxed);
  return status;
}

kjit_status runtime_kernel_take(kjit_runtime *runtime, const struct jit_request *request, kjit_kernel **out,
                                kjit_error *error) {
  struct kjit_module *module;
  *out = NULL;
  kjit_status status = module_get(runtime, request, request->entry, &module, error);
  if (status != KJIT_OK) return status;
  status = module_find_kernel(module, request->entry, out, error);
  if (status != KJIT_OK) module_table_give_back(&runtime->modules, module);
  return status;
}

/* Families keep kernels in tables without counting, so these modules stay loaded. */
kjit_status runtime_kernel_get(kjit_runtime *runtime, const struct jit_request *request, kjit_kernel **out,
                               kjit_error *error) {
  const kjit_status status = runtime_kernel_take(runtime, request, out, error);
  if (status != KJIT_OK) return status;
  atomic_store_explicit(&(*out)->module->stays, 1, memory_order_relaxed);
  module_table_give_back(&runtime->modules, (*out)->module);
  return KJIT_OK;
}
