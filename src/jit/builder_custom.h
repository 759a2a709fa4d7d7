/* A caller's own source through the builder: what it includes is recalled or collected, and collected again when the
 * compiler took another branch. */
#ifndef KJIT_JIT_BUILDER_CUSTOM_H
#define KJIT_JIT_BUILDER_CUSTOM_H

#include "jit/builder.h"
#include "jit/request/custom_request.h"

/* What is done with the request. It may be called again after a failure, and then starts anew. */
typedef kjit_status (*builder_custom_act)(void *user, const struct jit_request *request, kjit_error *error);

/* `role` may be NULL. `arch` is used where the request has none. Errors as kjit_build(), and those of `act`.
 * Thread-safe. */
kjit_status builder_custom(struct builder *builder, const kjit_build_request *request, const struct custom_role *role,
                           const char *arch, builder_custom_act act, void *user, kjit_error *error);

#endif
