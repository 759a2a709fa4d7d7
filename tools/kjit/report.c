/* What the subcommands say, and the exit codes that go with it. */
#include "command.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void complain(const char *format, va_list arguments) {
  fputs("kjit: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
}

int usage_error(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  complain(format, arguments);
  va_end(arguments);
  return EXIT_USAGE;
}

int failure(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  complain(format, arguments);
  va_end(arguments);
  return EXIT_FAILED;
}

int exit_code_of(kjit_status status) {
  switch (status) {
  case KJIT_OK:
    return EXIT_DONE;
  case KJIT_ERR_NO_DRIVER:
    return EXIT_NO_GPU;
  case KJIT_ERR_NO_NVRTC:
    return EXIT_NO_NVRTC;
  case KJIT_ERR_INVALID_ARG:
  case KJIT_ERR_PARSE:
    return EXIT_USAGE;
  default:
    return EXIT_FAILED;
  }
}

int report_error(const kjit_error *error) {
  const kjit_status status = (kjit_status)error->status;
  const char *message = error->message[0] != '\0' ? error->message : kjit_status_text(status);
  fprintf(stderr, "kjit: %s (%s)\n", message, kjit_status_name(status));
  return exit_code_of(status);
}

kjit_status error_say(kjit_error *error, kjit_status status, const char *format, ...) {
  if (error == NULL || error->status != KJIT_OK) return status;
  va_list arguments;
  va_start(arguments, format);
  error->status = (int32_t)status;
  vsnprintf(error->message, sizeof error->message, format, arguments);
  va_end(arguments);
  return status;
}

int print_text(const char *text) {
  if (fputs(text, stdout) >= 0 && fflush(stdout) == 0) return EXIT_DONE;
  return failure("standard output could not be written");
}

int print_json(json_t *object) {
  const int dumped = object != NULL ? json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : -1;
  json_decref(object);
  if (dumped != 0) return failure("the JSON result could not be written");
  return print_text("\n");
}

int report_failure(bool json, const kjit_error *error, const char *log) {
  const int code = report_error(error);
  if (log == NULL) log = "";
  if (!json) {
    fputs(log, stderr);
    return code;
  }
  (void)print_json(json_pack("{s:{s:s, s:s}, s:s}", "error", "status", kjit_status_name((kjit_status)error->status),
                             "message", error->message, "log", log));
  return code;
}

static void print_log_line(void *user, kjit_log_level level, const char *line) {
  static const char *const names[] = {"error", "warning", "info", "debug"};
  (void)user;
  const size_t index = (size_t)level < sizeof names / sizeof *names ? (size_t)level : 0;
  fprintf(stderr, "kjit: %s: %s\n", names[index], line);
}

kjit_status open_runtime(kjit_runtime **out, kjit_error *error) {
  kjit_runtime_options options = kjit_runtime_options_default();
  options.log = print_log_line;
  return kjit_runtime_create(out, &options, error);
}
