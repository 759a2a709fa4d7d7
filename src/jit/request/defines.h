/* The #define lines of a caller's request. */
#ifndef KJIT_JIT_REQUEST_DEFINES_H
#define KJIT_JIT_REQUEST_DEFINES_H

#include <stdbool.h>

#include <kjit/build.h>

#include "base/text.h"
#include "jit/request/counts.h"

/* Bounds: more than people write or generators emit, and less than would make a key unwieldy. */
#define VALUE_LIMIT 16384 /* bytes */
#define DEFINES_BYTES_MAX                                                                                              \
  (REQUEST_DEFINES_MAX * (VALUE_LIMIT + 1016)) /* all lines, with names of at most 1,000 bytes */

/* KJIT_ERR_INVALID_ARG with the define and the rule. */
kjit_status defines_check(const kjit_build_request *request, kjit_error *error);

/* Is NDEBUG among them? Then the compiler needs the option --define-macro=NDEBUG too, because NVRTC defines assert()
 * before it reads the source. */
bool defines_switch_assert(const kjit_build_request *request);

/* Append the lines of checked defines. */
void defines_print(const kjit_build_request *request, struct text *out);

#endif
