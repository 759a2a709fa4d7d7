/* The names in a request: identifiers, and the name expressions that the compiler is asked about. */
#ifndef KJIT_JIT_REQUEST_NAMES_H
#define KJIT_JIT_REQUEST_NAMES_H

#include <stdbool.h>

#include <kjit/build.h>

#include "base/mem.h"

/* A C identifier of at most 1,000 bytes. */
bool name_is_identifier(const char *name);

/* Copies of the request's names, with the entry first where that is an expression. KJIT_ERR_INVALID_ARG with the field
 * and the rule, KJIT_ERR_NO_MEMORY. Finish them in either case. */
kjit_status names_take(char ***out, size_t *count, const struct mem *mem, const kjit_build_request *request,
                       kjit_error *error);
void names_finish(char **names, size_t count, const struct mem *mem); /* accepts NULL */

#endif
