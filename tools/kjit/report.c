/* What the subcommands print: error lines on stderr, results on stdout, JSON objects; and the exit codes that statuses
 * stand for. Also opens the runtime that every subcommand uses, with the log level of KJIT_LOG. One thread, except that
 * the log callback may be called by any thread of the library. */
#include "command.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Replace control characters by '?', because a message quotes what a user typed: it must stay one line and must not
 * reach the terminal as an escape sequence. */
static void make_printable(char *text) {
  for (; *text != '\0'; text++)
    if ((unsigned char)*text < 0x20 || *text == 0x7f) *text = '?';
}

static void complain(const char *format, va_list arguments) {
  char text[1024];
  vsnprintf(text, sizeof text, format, arguments);
  make_printable(text);
  fprintf(stderr, "kjit: %s\n", text);
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
  make_printable(error->message);
  return status;
}

int print_text(const char *text) {
  if (fputs(text, stdout) >= 0 && fflush(stdout) == 0) return EXIT_DONE;
  return failure("standard output could not be written");
}

json_t *json_text(const char *text) {
  json_t *whole = json_string(text);
  if (whole != NULL) return whole;
  char *plain = strdup(text);
  for (char *at = plain; at != NULL && *at != '\0'; at++)
    if ((unsigned char)*at > 0x7f) *at = '?';
  whole = json_string(plain != NULL ? plain : "");
  free(plain);
  return whole;
}

int print_json(json_t *object) {
  const int dumped = object != NULL ? json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : -1;
  json_decref(object);
  if (dumped != 0) return failure("the JSON result could not be written");
  return print_text("\n");
}

/* The error's message is a line of the compiler's log where the compiler said it: then the log says it. */
int report_failure(bool json, const kjit_error *error, const char *log) {
  kjit_error shown = *error;
  if (log == NULL) log = "";
  if (!json && log[0] != '\0' && strstr(log, error->message) != NULL)
    snprintf(shown.message, sizeof shown.message, "the compiler refused it");
  const int code = report_error(&shown);
  if (!json) {
    fputs(log, stderr);
    return code;
  }
  (void)print_json(json_pack("{s:{s:s, s:o}, s:o}", "error", "status", kjit_status_name((kjit_status)error->status),
                             "message", json_text(error->message), "log", json_text(log)));
  return code;
}

static const char *const level_names[] = {"error", "warning", "info", "debug"};
enum { LEVEL_COUNT = sizeof level_names / sizeof *level_names };

/* Lines above this level are dropped; set before the first runtime is made, read by any thread after. */
static size_t level_wanted = KJIT_LOG_WARNING;

static void print_log_line(void *user, kjit_log_level level, const char *line) {
  (void)user;
  const size_t index = (size_t)level < LEVEL_COUNT ? (size_t)level : LEVEL_COUNT - 1;
  if (index <= level_wanted) fprintf(stderr, "kjit: %s: %s\n", level_names[index], line);
}

/* A command is run to fill a store, so it waits longer for what is still to be written than a program would. */
#define REMOTE_END_MS 60000

static kjit_status read_level(kjit_error *error) {
  const char *text = getenv("KJIT_LOG");
  if (text == NULL || *text == '\0') return KJIT_OK;
  for (size_t i = 0; i < LEVEL_COUNT; i++)
    if (strcmp(text, level_names[i]) == 0) {
      level_wanted = i;
      return KJIT_OK;
    }
  return error_say(error, KJIT_ERR_INVALID_ARG, "KJIT_LOG=%s: error, warning, info or debug is expected", text);
}

kjit_status open_runtime(kjit_runtime **out, kjit_error *error) {
  return open_runtime_trusting(out, NULL, 0, error);
}

static kjit_status open_with(kjit_runtime **out, kjit_runtime_options *options, kjit_error *error) {
  options->log = print_log_line;
  options->remote_end_ms = REMOTE_END_MS;
  const kjit_status status = read_level(error);
  return status == KJIT_OK ? kjit_runtime_create(out, options, error) : status;
}

kjit_status open_runtime_trusting(kjit_runtime **out, const char *const *keys, size_t count, kjit_error *error) {
  const struct runtime_wishes wishes = {.trusted_keys = keys, .trusted_key_count = count};
  return open_runtime_wishing(out, &wishes, error);
}

kjit_status open_runtime_wishing(kjit_runtime **out, const struct runtime_wishes *wishes, kjit_error *error) {
  kjit_runtime_options options = kjit_runtime_options_default();
  options.trusted_keys = wishes->trusted_keys;
  options.trusted_key_count = wishes->trusted_key_count;
  options.cache_remote = wishes->remote;
  options.signing_key_path = wishes->signing_key;
  options.cache_mode = wishes->cache_mode;
  return open_with(out, &options, error);
}

kjit_status open_runtime_serving(kjit_runtime **out, kjit_error *error) {
  kjit_runtime_options options = kjit_runtime_options_default();
  const char *asked = getenv("KJIT_COMPILE_SERVER");
  if (asked == NULL || *asked == '\0') options.compile_server = KJIT_COMPILE_SERVER_ON;
  return open_with(out, &options, error);
}
