/* The first line in which two texts differ, in a form that can be shown: short, and free of what a terminal obeys. */
#ifndef KJIT_JIT_ADMIN_LINE_DIFFERENCE_H
#define KJIT_JIT_ADMIN_LINE_DIFFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Room for a shown line: LINE_SHOWN_BYTES of it, each of which may become "\xNN", two ellipses and a NUL. */
#define LINE_SHOWN_BYTES 120
#define LINE_TEXT_BYTES  (4 * LINE_SHOWN_BYTES + 16)

struct line_side {
  bool missing; /* the text ends before the line */
  char text[LINE_TEXT_BYTES];
};

struct line_difference {
  uint32_t line; /* from 1; 0: the texts are equal */
  struct line_side left, right;
};

/* Of a long line the bytes around the first difference are shown, with an ellipsis at each end where something was left
 * out. A byte that is no printable UTF-8 is shown as "\xNN", a tab as "\t". */
void line_difference_find(struct line_difference *found, const char *left, size_t left_bytes, const char *right,
                          size_t right_bytes);

#endif
