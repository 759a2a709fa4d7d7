/* A caller's own kernel: kjit_build_request -> jit_request, with the include closure resolved and hashed. */
#ifndef KJIT_JIT_REQUEST_CUSTOM_REQUEST_H
#define KJIT_JIT_REQUEST_CUSTOM_REQUEST_H

#include <kjit/build.h>

#include "jit/request/request.h"

struct custom_request {
  struct jit_request request; /* points into what follows; nothing of the public request is kept */
  void *storage;              /* private */
};

/* KJIT_ERR_INVALID_ARG (which field, and the rule), KJIT_ERR_UNSUPPORTED (a request from a newer header, or flags that
 * this library does not know), KJIT_ERR_NOT_FOUND (an #include that is nowhere: file, line and name), KJIT_ERR_IO,
 * KJIT_ERR_NO_MEMORY. `arch` is used where public_request->arch is NULL. After a failure nothing is left to finish. */
kjit_status custom_request_init(struct custom_request *custom, const struct mem *mem,
                                const kjit_build_request *public_request, const char *arch, kjit_error *error);
void custom_request_finish(struct custom_request *custom);

#endif
