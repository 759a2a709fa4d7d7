/* A config's source and cubin: no GPU. */
#include "attention/sm90/sm90_request.h"
#include "attention/sm90/sm90_rules.h"
#include "base/error.h"
#include "runtime/runtime_internal.h"

kjit_status kjit_attention_sm90_build(kjit_runtime *runtime, const kjit_attention_sm90_config *config, uint32_t flags,
                                      kjit_artifact **out, kjit_error *error) {
  struct sm90_request request;
  error_clear(error);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  if (flags & ~JIT_REQUEST_FLAGS) return error_invalid(error, "flags", "only KJIT_BUILD_* may be set");
  kjit_status status = kjit_attention_sm90_config_check(config, NULL, error);
  if (status == KJIT_OK)
    status = sm90_request_init(&request, builder_sources(runtime_builder(runtime)), config, flags, error);
  return status == KJIT_OK ? builder_get(runtime_builder(runtime), &request.request, out, error) : status;
}

kjit_status kjit_attention_sm90_source(kjit_runtime *runtime, const kjit_attention_sm90_config *config, char **text,
                                       kjit_error *error) {
  struct text out;
  error_clear(error);
  if (!text) return error_invalid(error, "text", "must not be NULL");
  *text = NULL;
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  kjit_status status = kjit_attention_sm90_config_check(config, NULL, error);
  const struct source_set *sources = NULL;
  if (status == KJIT_OK) status = sm90_request_sources(builder_sources(runtime_builder(runtime)), &sources, error);
  if (status != KJIT_OK) return status;
  if (sources->withheld) {
    return error_set(error, KJIT_ERR_UNSUPPORTED,
                     "this library was built without its kernel sources (KJIT_EMBED_SOURCES=OFF)");
  }
  const kjit_attention_sm90_config canonical = kjit_attention_sm90_config_canonical(config);
  text_init(&out, runtime_mem(runtime), SM90_PROLOGUE_MAX + sources->files[0].bytes);
  sm90_request_prologue(&canonical, &out);
  text_append_bytes(&out, sources->files[0].text, sources->files[0].bytes);
  *text = text_take(&out);
  text_finish(&out);
  return *text ? KJIT_OK : error_no_memory(error);
}
