/* Global variables of a module by name, and copies to and from them. The driver finds them in the current context. */
#include <string.h>

#include "base/error.h"
#include "base/struct_intake.h"
#include "runtime/runtime_state.h"

/* A variable may be asked for by a name expression, for which the artifact knows the lowered name. That one has no NUL
 * where it lies, hence the copy. */
static kjit_status find(struct kjit_module *module, const char *name, kjit_global *out, kjit_error *error) {
  if (!module) return error_invalid(error, "module", "must not be NULL");
  if (!name || !*name) return error_invalid(error, "name", "must name a variable");
  const struct driver_api *const cu = module->cu;
  if (!cu->LibraryGetGlobal)
    return error_set(error, KJIT_ERR_UNSUPPORTED, "the driver library has no cuLibraryGetGlobal");
  const char *lowered = name;
  size_t lowered_bytes = strlen(name), bytes = 0;
  CUdeviceptr address = 0;
  (void)artifact_lowered(module->artifact, name, &lowered, &lowered_bytes);
  char *const linkage = mem_duplicate(&module->runtime->mem, lowered, lowered_bytes);
  if (!linkage) return error_no_memory(error);
  const CUresult result = cu->LibraryGetGlobal(&address, &bytes, module->library, linkage);
  mem_free(&module->runtime->mem, linkage);
  *out = (kjit_global){.struct_size = sizeof *out, .address = address, .bytes = bytes};
  if (result == CUDA_SUCCESS) return KJIT_OK;
  return driver_fail(cu, result == CUDA_ERROR_NOT_FOUND ? KJIT_ERR_NOT_FOUND : KJIT_ERR_DRIVER, result, error,
                     "name: the module has no variable \"%.120s\"", name);
}

kjit_status kjit_module_get_global(kjit_module *module, const char *name, kjit_global *global, kjit_error *error) {
  kjit_global found;
  error_clear(error);
  const kjit_status status = find(module, name, &found, error);
  return status == KJIT_OK ? struct_fill(global, &found, sizeof found, "global", error) : status;
}

/* Find the variable, and check that the part to copy lies in it. */
static kjit_status find_part(struct kjit_module *module, const char *name, size_t offset, const void *data,
                             size_t bytes, CUdeviceptr *address, kjit_error *error) {
  kjit_global global = {.struct_size = sizeof global};
  if (bytes && !data) return error_invalid(error, "data", "must not be NULL when bytes is not 0");
  const kjit_status status = find(module, name, &global, error);
  if (status != KJIT_OK) return status;
  if (!module->cu->MemcpyHtoDAsync || !module->cu->MemcpyDtoHAsync || !module->cu->StreamSynchronize)
    return error_set(error, KJIT_ERR_UNSUPPORTED, "the driver library has no functions for copies");
  if (offset > global.bytes || bytes > global.bytes - offset) {
    return error_set(error, KJIT_ERR_INVALID_ARG, "bytes: %zu from offset %zu on; the variable \"%.120s\" has %llu",
                     bytes, offset, name, (unsigned long long)global.bytes);
  }
  *address = (CUdeviceptr)global.address + (CUdeviceptr)offset;
  return KJIT_OK;
}

static kjit_status report(const struct kjit_module *module, CUresult result, const char *what, const char *name,
                          kjit_error *error) {
  if (result == CUDA_SUCCESS) return KJIT_OK;
  return driver_fail(module->cu, KJIT_ERR_DRIVER, result, error, "copying %s the variable \"%.120s\"", what, name);
}

/* Enqueued on the stream and not waited for, unlike a read: nobody looks at the variable but kernels behind it on the
 * stream. */
kjit_status kjit_module_write_global(kjit_module *module, const char *name, size_t offset, const void *data,
                                     size_t bytes, CUstream stream, kjit_error *error) {
  CUdeviceptr address = 0;
  error_clear(error);
  const kjit_status status = find_part(module, name, offset, data, bytes, &address, error);
  if (status != KJIT_OK || !bytes) return status;
  return report(module, module->cu->MemcpyHtoDAsync(address, data, bytes, stream), "to", name, error);
}

/* The data is there on return, because a caller reads it next; so the stream is waited for. */
kjit_status kjit_module_read_global(kjit_module *module, const char *name, size_t offset, void *data, size_t bytes,
                                    CUstream stream, kjit_error *error) {
  CUdeviceptr address = 0;
  error_clear(error);
  const kjit_status status = find_part(module, name, offset, data, bytes, &address, error);
  if (status != KJIT_OK || !bytes) return status;
  CUresult result = module->cu->MemcpyDtoHAsync(data, address, bytes, stream);
  if (result == CUDA_SUCCESS) result = module->cu->StreamSynchronize(stream);
  return report(module, result, "from", name, error);
}
