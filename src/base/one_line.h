/* Messages that are one line, whatever the names and texts inside them hold, and that fit their buffer. */
#ifndef KJIT_BASE_ONE_LINE_H
#define KJIT_BASE_ONE_LINE_H

#include <stdarg.h>

#include <kjit/common.h>

/* Format into `out`, which has `bytes` bytes, at least 8. Control characters become spaces. A text that does not fit is
 * cut between two UTF-8 characters and ends in "...". */
void one_line_format(char *out, size_t bytes, const char *format, va_list arguments) KJIT_PRINTF(3, 0);

#endif
