/* Lines for the caller's log callback. A line is formatted on the stack and cut to one line, so that "out of memory"
 * can be logged without memory. The callback runs on the thread that has something to say, and that thread holds no
 * lock, so the callback may call the library. */
#include "base/log.h"

#include "base/one_line.h"

/* A path and a sentence fit; a longer line is cut. */
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
