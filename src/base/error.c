/* Filling in the caller's kjit_error. A record that already holds an error is left alone, so that the first error,
 * which is the cause, reaches the user and not one of its consequences. Messages are formatted in place and cut to
 * one line, so that reporting "out of memory" needs no memory. An error belongs to the thread of the call that it
 * was passed to. */
#include "base/error.h"

#include "base/one_line.h"

void error_clear(kjit_error *error) {
  if (!error) return;
  error->status = KJIT_OK;
  error->cause_domain = KJIT_CAUSE_NONE;
  error->cause = 0;
  error->message[0] = '\0';
}

static void record(kjit_error *error, kjit_status status, kjit_cause_domain domain, int64_t cause, const char *format,
                   va_list arguments) {
  if (!error || error->status != KJIT_OK) return;
  error->status = (int32_t)status;
  error->cause_domain = (int32_t)domain;
  error->cause = cause;
  one_line_format(error->message, sizeof error->message, format, arguments);
}

kjit_status error_set(kjit_error *error, kjit_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  record(error, status, KJIT_CAUSE_NONE, 0, format, arguments);
  va_end(arguments);
  return status;
}

kjit_status error_set_cause(kjit_error *error, kjit_status status, kjit_cause_domain domain, int64_t cause,
                            const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  record(error, status, domain, cause, format, arguments);
  va_end(arguments);
  return status;
}

kjit_status error_no_memory(kjit_error *error) {
  return error_set(error, KJIT_ERR_NO_MEMORY, "%s", kjit_status_text(KJIT_ERR_NO_MEMORY));
}

kjit_status error_invalid(kjit_error *error, const char *name, const char *rule) {
  return error_set(error, KJIT_ERR_INVALID_ARG, "%s: %s", name, rule);
}
