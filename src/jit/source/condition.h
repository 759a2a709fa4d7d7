/* The value of an #if. */
#ifndef KJIT_JIT_SOURCE_CONDITION_H
#define KJIT_JIT_SOURCE_CONDITION_H

#include <stdbool.h>

#include "jit/source/macro_table.h"

/* The args of an #if or #elif. What is malformed is false: the compiler, which comes to the same line, says so. */
bool condition_holds(struct macro_expansion *expansion, const char *args, size_t bytes);

#endif
