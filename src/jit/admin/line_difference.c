/* Finding the first line in which two texts differ (line_difference.h): the first byte that differs is searched, the
 * line ends before it are counted, and of both texts the part of the line around that byte is written out. Any thread.
 */
#include "jit/admin/line_difference.h"

#include <stdio.h>
#include <string.h>

/* How much of a line is shown in front of its first difference. */
#define SHOWN_BEFORE 50

#define ELLIPSIS "…"

/* Bytes of the character that begins here; 0 when it is not one that can be printed: a control character, or no UTF-8.
 */
static size_t printable(const char *text, size_t bytes) {
  const unsigned char first = (unsigned char)*text;
  if (first < 0x80) return first >= 0x20 && first != 0x7F;
  const size_t length = first >= 0xC2 && first < 0xE0 ? 2 : first >= 0xE0 && first < 0xF0 ? 3 : 4;
  if (first < 0xC2 || first >= 0xF5 || length > bytes) return 0;
  for (size_t i = 1; i < length; i++)
    if (((unsigned char)text[i] & 0xC0) != 0x80) return 0;
  const unsigned char second = (unsigned char)text[1];
  /* Overlong forms, surrogates, what lies beyond Unicode, and the control characters U+0080 to U+009F. */
  const bool bad = (first == 0xE0 && second < 0xA0) || (first == 0xED && second >= 0xA0) ||
                   (first == 0xF0 && second < 0x90) || (first == 0xF4 && second >= 0x90) ||
                   (first == 0xC2 && second < 0xA0);
  return bad ? 0 : length;
}

/* Is it a byte of a character that began before? A character has at most three of them. */
static bool is_inside(char byte) {
  return ((unsigned char)byte & 0xC0) == 0x80;
}

/* Write `bytes` of a line. A tab is shown as "\t", because a blank in its place can be the difference. */
static size_t write_shown(char *to, const char *from, size_t bytes) {
  size_t at = 0;
  for (size_t i = 0; i < bytes;) {
    const size_t length = printable(from + i, bytes - i);
    if (length) {
      memcpy(to + at, from + i, length);
      at += length;
    } else if (from[i] == '\t') {
      at += (size_t)snprintf(to + at, 3, "\\t");
    } else {
      at += (size_t)snprintf(to + at, 5, "\\x%02x", (unsigned)(unsigned char)from[i]);
    }
    i += length ? length : 1;
  }
  return at;
}

/* Show the line that begins at `start` and differs at `at`. Without an end of line behind its last byte it is the
 * text's last, and if the other text goes on with one there, that is the difference and is shown. */
static void show(struct line_side *side, const char *text, size_t bytes, size_t start, size_t at, bool shows_end) {
  side->missing = start == bytes && at == start && !shows_end;
  side->text[0] = '\0';
  if (side->missing) return;
  const char *stop = memchr(text + start, '\n', bytes - start);
  const size_t end = stop ? (size_t)(stop - text) : bytes;
  size_t first = at - start > SHOWN_BEFORE ? at - SHOWN_BEFORE : start;
  for (int i = 0; i < 3 && first > start && first < end && is_inside(text[first]); i++)
    first--;
  size_t last = end - first > LINE_SHOWN_BYTES ? first + LINE_SHOWN_BYTES : end;
  for (int i = 0; i < 3 && last < end && is_inside(text[last]); i++)
    last--;
  size_t used = (size_t)snprintf(side->text, sizeof side->text, "%s", first > start ? ELLIPSIS : "");
  used += write_shown(side->text + used, text + first, last - first);
  (void)snprintf(side->text + used, sizeof side->text - used, "%s", last < end ? ELLIPSIS : shows_end ? "\\n" : "");
}

static bool ends_line(const char *text, size_t bytes, size_t at) {
  return at < bytes && text[at] == '\n';
}

void line_difference_find(struct line_difference *found, const char *left, size_t left_bytes, const char *right,
                          size_t right_bytes) {
  const size_t shared = left_bytes < right_bytes ? left_bytes : right_bytes;
  size_t at = 0, start = 0;
  uint32_t line = 1;
  *found = (struct line_difference){0};
  for (; at < shared && left[at] == right[at]; at++) {
    if (left[at] != '\n') continue;
    line++;
    start = at + 1;
  }
  if (at == left_bytes && at == right_bytes) return;
  found->line = line;
  /* One text ends within the line, and the other ends the line there: only the end of the line differs. */
  const bool left_ends = ends_line(left, left_bytes, at) && at == right_bytes && at > start;
  const bool right_ends = ends_line(right, right_bytes, at) && at == left_bytes && at > start;
  show(&found->left, left, left_bytes, start, at, left_ends);
  show(&found->right, right, right_bytes, start, at, right_ends);
}
