/* A kernel's source and cubin: no GPU. */
#include "attention/flash/flash_request.h"
#include "base/error.h"
#include "runtime/runtime_internal.h"

kjit_status kjit_flash_variant_build(kjit_runtime *runtime, const kjit_flash_variant *variant, const char *arch,
                                     uint32_t flags, kjit_artifact **out, kjit_error *error) {
  struct flash_request request;
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  if (!arch) return error_invalid(error, "arch", "must not be NULL");
  if (flags & ~JIT_REQUEST_FLAGS) {
    return error_invalid(error, "flags", "only KJIT_BUILD_* may be set");
  }
  kjit_status status = kjit_flash_variant_check(variant, arch, error);
  if (status == KJIT_OK)
    status = flash_request_init(&request, builder_sources(runtime_builder(runtime)), variant, arch, flags, error);
  return status == KJIT_OK ? builder_get(runtime_builder(runtime), &request.request, out, error) : status;
}

kjit_status kjit_flash_build(kjit_runtime *runtime, const kjit_flash_config *config, const char *arch, uint32_t flags,
                             kjit_artifact **out, kjit_error *error) {
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  if (!config) return error_invalid(error, "config", "must not be NULL");
  const kjit_flash_variant plain = kjit_flash_variant_plain(config);
  return kjit_flash_variant_build(runtime, &plain, arch, flags, out, error);
}

kjit_status kjit_flash_variant_source(kjit_runtime *runtime, const kjit_flash_variant *variant, const char *arch,
                                      char **text, kjit_error *error) {
  struct text out;
  error_clear(error);
  if (!text) return error_invalid(error, "text", "must not be NULL");
  *text = NULL;
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  kjit_status status = kjit_flash_variant_check(variant, arch, error);
  const struct source_set *sources = NULL;
  if (status == KJIT_OK) status = flash_request_sources(builder_sources(runtime_builder(runtime)), &sources, error);
  if (status != KJIT_OK) return status;
  if (sources->withheld)
    return error_set(error, KJIT_ERR_UNSUPPORTED,
                     "this library was built without its kernel sources (KJIT_EMBED_SOURCES=OFF)");
  const kjit_flash_variant canonical = kjit_flash_variant_canonical(variant);
  text_init(&out, runtime_mem(runtime), FLASH_PROLOGUE_MAX + sources->files[0].bytes);
  flash_request_prologue(&canonical, &out);
  text_append_bytes(&out, sources->files[0].text, sources->files[0].bytes);
  *text = text_take(&out);
  text_finish(&out);
  return *text ? KJIT_OK : error_no_memory(error);
}

kjit_status kjit_flash_source(kjit_runtime *runtime, const kjit_flash_config *config, const char *arch, char **text,
                              kjit_error *error) {
  error_clear(error);
  if (!text) return error_invalid(error, "text", "must not be NULL");
  *text = NULL;
  if (!config) return error_invalid(error, "config", "must not be NULL");
  const kjit_flash_variant plain = kjit_flash_variant_plain(config);
  return kjit_flash_variant_source(runtime, &plain, arch, text, error);
}
