/* The constants that a CUDA source names: identifiers that begin with KJIT_, outside comments and strings. */
#ifndef KJIT_FAMILY_CONSTANT_SCAN_H
#define KJIT_FAMILY_CONSTANT_SCAN_H

#include <stdbool.h>
#include <stddef.h>

struct constant {
  const char *name; /* in the text, behind KJIT_ */
  size_t bytes;
  size_t line;  /* from 1 */
  bool defined; /* it stands in a #define of its own */
};

struct constant_scan {
  const char *start, *at, *end;
  size_t line;
};

void constant_scan_begin(struct constant_scan *scan, const char *text, size_t bytes);

/* False at the end of the text. */
bool constant_scan_next(struct constant_scan *scan, struct constant *out);

#endif
