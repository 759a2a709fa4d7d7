#include "base/log.h"

#include "base/one_line.h"

/* On the stack, so that saying "out of memory" needs none. A path and a sentence fit; what is longer is cut. */
#define LINE_BYTES 1024

void log_write(const struct log *log, kjit_log_level level, const char *format, ...) {
  if (!log || !log->write || level > log->level) return;
  char line[LINE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  one_line_format(line, sizeof line, format, arguments);
  va_end(arguments);
  log->write(log->user, level, line);
}
