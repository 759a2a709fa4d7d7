/* The compiled code of a caller's request: checked, with its digests. */
#ifndef KJIT_JIT_REQUEST_PARTS_H
#define KJIT_JIT_REQUEST_PARTS_H

#include "base/mem.h"
#include "jit/request/request.h"

/* The request's parts (mem_free); their bytes stay the caller's. KJIT_ERR_INVALID_ARG names the part. */
kjit_status parts_take(struct jit_part **out, const struct mem *mem, const kjit_build_request *request,
                       kjit_error *error);

/* A request of parts alone must not say anything of a source. */
kjit_status parts_check_no_source(const kjit_build_request *request, kjit_error *error);

/* Do source, parts, options and flags fit together? */
kjit_status parts_check_plan(const struct jit_request *request, kjit_error *error);

#endif
