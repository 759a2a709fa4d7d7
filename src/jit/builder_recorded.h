/* A recorded request through the builder. */
#ifndef KJIT_JIT_BUILDER_RECORDED_H
#define KJIT_JIT_BUILDER_RECORDED_H

#include "jit/builder.h"

/* Get or build what kjit_recorded_build() promises. `arch` may be NULL. Thread-safe. */
kjit_status builder_recorded(struct builder *builder, const char *path, const char *arch, uint32_t flags,
                             kjit_artifact **out, kjit_error *error);

#endif
