/* A kernel of a sealed program through the builder. */
#ifndef KJIT_JIT_BUILDER_SEALED_H
#define KJIT_JIT_BUILDER_SEALED_H

#include "jit/builder_custom.h"
#include "jit/bundle/sealed.h"

/* The request of one kernel, given to `act` as builder_custom() gives it. Errors of sealed_find(), and those of `act`.
 * Thread-safe. */
kjit_status builder_sealed(struct builder *builder, const struct sealed *sealed, const struct sealed_wanted *wanted,
                           uint32_t flags, builder_custom_act act, void *user, kjit_error *error);

/* Open a program under the keys that this builder trusts. Errors of sealed_open(). Thread-safe. */
kjit_status builder_open_sealed(struct builder *builder, const char *path, const void *data, size_t bytes,
                                struct sealed **out, kjit_error *error);

#endif
