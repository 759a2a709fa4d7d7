/* Formatting a message so that it is one line: control characters become spaces, because a name or a path inside the
 * message may hold a line break that would forge a line in a log. A message that does not fit is cut between two
 * UTF-8 characters and ends in "...". Any thread may call. */
#include "base/one_line.h"

#include <stdio.h>
#include <string.h>

static void mark_cut(char *out, size_t bytes) {
  static const char mark[] = "...";
  size_t end = bytes - sizeof mark;
  while (end > 0 && ((unsigned char)out[end] & 0xC0) == 0x80)
    end--;
  memcpy(out + end, mark, sizeof mark);
}

void one_line_format(char *out, size_t bytes, const char *format, va_list arguments) {
  const int length = vsnprintf(out, bytes, format, arguments);
  if (length < 0) *out = '\0';
  if (length > 0 && (size_t)length >= bytes) mark_cut(out, bytes);
  for (char *c = out; *c; c++) {
    if ((unsigned char)*c < 0x20 || *c == 0x7F) *c = ' ';
  }
}
