/* Reading the compiler's messages. NVRTC parses a name expression as a line of a file "__nv_name_map" and says so:
 *
 *   __nv_name_map(2): error: identifier "nope" is undefined
 *     #pragma nv_mangled_name nope
 *                             ^
 *   (an empty line)
 *   __nv_name_map(2): error: Error in parsing name expression for lowered name lookup. Input name expression was: "
 * nope" #pragma nv_mangled_name nope
 *                             ^
 *
 * The first of the two becomes `name expression "nope": error: identifier …`, the second goes. Pure functions. */
#include <stdbool.h>
#include <string.h>

#include "base/text.h"
#include "jit/compile/compile_internal.h"

static const char map_prefix[] = "__nv_name_map(";
static const char pragma[] = "#pragma nv_mangled_name ";
static const char repeated[] = "Error in parsing name expression for lowered name lookup";
static const char new_prefix[] = "name expression \"";

static const char *line_end(const char *line) {
  const char *const newline = strchr(line, '\n');
  return newline ? newline + 1 : line + strlen(line);
}

static bool begins(const char *text, const char *prefix) {
  return !strncmp(text, prefix, strlen(prefix));
}

/* Find the end of the diagnostic that begins at `line`: behind its pragma, its caret and an empty line. */
static const char *diagnostic_end(const char *line, const char **expression, size_t *bytes) {
  const char *const second = line_end(line);
  const char *const found = second + strspn(second, " ");
  *bytes = 0;
  *expression = "";
  if (!begins(found, pragma)) return second;
  *expression = found + sizeof pragma - 1;
  *bytes = strcspn(*expression, "\n");
  const char *end = line_end(second);
  if (end[strspn(end, " ")] == '^') end = line_end(end);
  return *end == '\n' ? end + 1 : end;
}

/* Rewrite the log in place. It never grows, because the pragma's line, which is dropped, is longer than what is
 * inserted. */
void compile_log_rewrite(char *log) {
  char *out = log;
  for (const char *line = log, *next; *line; line = next) {
    const char *expression;
    size_t bytes;
    next = line_end(line);
    if (!begins(line, map_prefix)) {
      memmove(out, line, (size_t)(next - line));
      out += next - line;
      continue;
    }
    const char *const colon = strchr(line, ')');
    const char *const message = colon ? colon + 1 : line;
    const size_t message_bytes = (size_t)(next - message);
    next = diagnostic_end(line, &expression, &bytes);
    if (!bytes || memmem(message, message_bytes, repeated, sizeof repeated - 1)) {
      if (bytes) continue;
      memmove(out, line, (size_t)(next - line));
      out += next - line;
      continue;
    }
    /* The expression is copied first, because the message may be moved over it. */
    char *const start = out;
    char keep[256];
    const size_t kept = bytes < sizeof keep ? bytes : sizeof keep;
    memcpy(keep, expression, kept);
    memmove(start + sizeof new_prefix - 1 + kept + 1, message, message_bytes);
    memcpy(start, new_prefix, sizeof new_prefix - 1);
    memcpy(start + sizeof new_prefix - 1, keep, kept);
    start[sizeof new_prefix - 1 + kept] = '"';
    out = start + sizeof new_prefix - 1 + kept + 1 + message_bytes;
  }
  *out = '\0';
}

void compile_error_line(const char *log, const char **line, int *bytes) {
  const char *found = strstr(log, "error"), *fatal = strstr(log, "fatal");
  if (!found || (fatal && fatal < found)) found = fatal ? fatal : log;
  while (found > log && found[-1] != '\n')
    found--;
  *line = found;
  *bytes = (int)strcspn(found, "\n");
}
