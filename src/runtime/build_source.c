/* kjit_build_source(): the text that would be compiled for a request, prologue and main source joined, for people to
 * read. Nothing is compiled. Any thread. */
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "jit/request/custom_request.h"
#include "runtime/runtime_internal.h"

static kjit_status join(const kjit_runtime *runtime, const struct custom_request *custom, char **text,
                        kjit_error *error) {
  const struct jit_request *request = &custom->request;
  const kjit_source *source = custom_request_source(custom);
  struct text out;
  text_init(&out, runtime_mem(runtime), strlen(request->prologue) + source->bytes);
  text_append(&out, request->prologue);
  text_append_bytes(&out, source->text, source->bytes);
  *text = text_take(&out);
  text_finish(&out);
  return *text ? KJIT_OK : error_no_memory(error);
}

kjit_status kjit_build_source(kjit_runtime *runtime, const kjit_build_request *request, char **text,
                              kjit_error *error) {
  error_clear(error);
  if (!text) return error_invalid(error, "text", "must not be NULL");
  *text = NULL;
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  if (!request) return error_invalid(error, "request", "must not be NULL");
  struct custom_request custom;
  kjit_status status = custom_request_begin(&custom, runtime_mem(runtime), request, NULL, NULL, error);
  if (status != KJIT_OK) return status;
  status = join(runtime, &custom, text, error);
  custom_request_finish(&custom);
  return status;
}
