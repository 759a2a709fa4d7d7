/* The #include lines of a source text, without preprocessing it: comments, strings and raw strings are skipped, spliced
 * lines joined, and conditions ignored, so that what is found is what any configuration could include. */
#ifndef KJIT_JIT_REQUEST_INCLUDE_SCAN_H
#define KJIT_JIT_REQUEST_INCLUDE_SCAN_H

#include <kjit/common.h>

struct include {
  const char *name; /* in the text: without the quotes; of a computed one, the macro */
  size_t name_bytes;
  size_t line;    /* from 1 */
  _Bool angled;   /* <name> */
  _Bool computed; /* #include MACRO */
  _Bool optional; /* under #if, or in __has_include; an include guard is no condition */
};

/* Called in the order of the text; what is not KJIT_OK stops the scan and is its result. */
typedef kjit_status (*include_visit)(void *user, const struct include *include);

kjit_status include_scan(const char *text, size_t bytes, include_visit visit, void *user);

#endif
