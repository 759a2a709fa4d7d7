#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void error_clear(kjit_error *error) {
  if (!error) return;
  error->status = KJIT_OK;
  error->cause_domain = KJIT_CAUSE_NONE;
  error->cause = 0;
  error->message[0] = '\0';
}

/* A text that was cut must not end inside a UTF-8 sequence, and must show that it was cut. */
static void mark_cut(char *message, size_t bytes) {
  static const char mark[] = "...";
  size_t end = bytes - sizeof mark;
  while (end > 0 && ((unsigned char)message[end] & 0xC0) == 0x80)
    end--;
  memcpy(message + end, mark, sizeof mark);
}

/* The promise is one line, whatever the names and texts inside it hold. */
static void flatten(char *message) {
  for (char *c = message; *c; c++) {
    if ((unsigned char)*c < 0x20 || *c == 0x7F) *c = ' ';
  }
}

static void record(kjit_error *error, kjit_status status, kjit_cause_domain domain, int64_t cause, const char *format,
                   va_list arguments) {
  if (!error || error->status != KJIT_OK) return;
  error->status = (int32_t)status;
  error->cause_domain = (int32_t)domain;
  error->cause = cause;
  const int length = vsnprintf(error->message, sizeof error->message, format, arguments);
  if (length < 0) error->message[0] = '\0';
  if (length >= (int)sizeof error->message) mark_cut(error->message, sizeof error->message);
  flatten(error->message);
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
