/* Messages: one line, whatever the names and texts inside them hold, cut to the room there is. */
#ifndef KJIT_BASE_ONE_LINE_H
#define KJIT_BASE_ONE_LINE_H

#include <stdarg.h>

#include <kjit/common.h>

/* Format into `out`. Control characters become spaces. What does not fit is cut between two UTF-8 characters and ends
 * in
 * "...". `bytes` is at least 8. */
void one_line_format(char *out, size_t bytes, const char *format, va_list arguments) KJIT_PRINTF(3, 0);

#endif
