/* The #define lines of a caller's request. defines_check() refuses a name that is no identifier or stands twice, and a
 * value that would continue into the lines behind it; defines_print() writes the lines.
 *
 * Threads: nothing is shared. */
#include "jit/request/defines.h"

#include <string.h>

#include "base/error.h"
#include "jit/request/names.h"

/* Why a value would continue into the lines behind its #define; NULL when it would not. */
static const char *value_fault(const char *value) {
  const size_t bytes = strnlen(value, VALUE_LIMIT + 1);
  if (bytes > VALUE_LIMIT) return "is longer than 16,384 bytes";
  if (strpbrk(value, "\n\r")) return "must not have a newline";
  if (bytes && value[bytes - 1] == '\\') return "must not end in a backslash";
  for (const char *comment = value; (comment = strstr(comment, "/*")); comment += 2) {
    comment = strstr(comment + 2, "*/");
    if (!comment) return "opens a comment that it does not close";
  }
  return NULL;
}

static kjit_status check_define(const kjit_build_request *request, size_t index, kjit_error *error) {
  const kjit_define *define = &request->defines[index];
  if (!define->name || !name_is_identifier(define->name)) {
    return error_set(error, KJIT_ERR_INVALID_ARG, "defines[%zu].name: \"%.80s\" is not a C identifier", index,
                     define->name ? define->name : "");
  }
  for (size_t i = 0; i < index; i++) {
    if (!strcmp(request->defines[i].name, define->name)) {
      return error_set(error, KJIT_ERR_INVALID_ARG, "defines[%zu].name: %.80s is defined by defines[%zu] already",
                       index, define->name, i);
    }
  }
  const char *fault = define->value ? value_fault(define->value) : NULL;
  if (!fault) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_ARG, "defines[%zu] (%.80s): the value %s", index, define->name, fault);
}

kjit_status defines_check(const kjit_build_request *request, kjit_error *error) {
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < request->define_count && status == KJIT_OK; i++)
    status = check_define(request, i, error);
  return status;
}

bool defines_switch_assert(const kjit_build_request *request) {
  for (size_t i = 0; i < request->define_count; i++) {
    if (!strcmp(request->defines[i].name, "NDEBUG")) return true;
  }
  return false;
}

void defines_print(const kjit_build_request *request, struct text *out) {
  for (size_t i = 0; i < request->define_count; i++) {
    const kjit_define *define = &request->defines[i];
    /* The option has defined it already, and the compiler would warn of another value. */
    if (!strcmp(define->name, "NDEBUG")) text_append(out, "#undef NDEBUG\n");
    text_appendf(out, "#define %s %s\n", define->name, define->value ? define->value : "1");
  }
}
