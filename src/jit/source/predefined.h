/* The macros that NVRTC defines before the first line of a source. */
#ifndef KJIT_JIT_SOURCE_PREDEFINED_H
#define KJIT_JIT_SOURCE_PREDEFINED_H

#include "jit/source/include_terms.h"
#include "jit/source/macro_table.h"

void predefined_define(struct macro_table *macros, const struct include_terms *terms);

#endif
