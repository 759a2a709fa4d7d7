/* A builder across fork(): the child can use it at once, and keeps none of the parent's locks alive. */
#ifndef KJIT_JIT_BUILDER_FORK_H
#define KJIT_JIT_BUILDER_FORK_H

#include <stdbool.h>

#include "jit/builder_internal.h"

bool builder_fork_init(struct builder *builder);
void builder_fork_finish(struct builder *builder);

#endif
