/* What program_api.c, program_copy.c and sealed_api.c share. */
#ifndef KJIT_RUNTIME_PROGRAM_H
#define KJIT_RUNTIME_PROGRAM_H

#include "jit/bundle/sealed.h"

/* A program of a request, whose texts are copied, or of a sealed file, which it takes over on success; the request is
 * all zero then. KJIT_ERR_NO_MEMORY. */
kjit_status program_make(kjit_runtime *runtime, const kjit_build_request *request, struct sealed *sealed,
                         kjit_program **out, kjit_error *error);

/* A copy of a request and all its texts, in a block of program_copy_bytes() bytes from mem_alloc(). */
size_t program_copy_bytes(const kjit_build_request *request);
kjit_build_request program_copy(const kjit_build_request *request, void *block);

/* NULL for a program of a request. */
const struct sealed *program_sealed(const kjit_program *program);

#endif
