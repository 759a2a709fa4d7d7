/* The macros that NVRTC defines before the first line of a source. */
#ifndef KJIT_JIT_REQUEST_PREDEFINED_H
#define KJIT_JIT_REQUEST_PREDEFINED_H

#include "jit/request/include_terms.h"
#include "jit/request/macro_table.h"

void predefined_define(struct macro_table *macros, const struct include_terms *terms);

#endif
