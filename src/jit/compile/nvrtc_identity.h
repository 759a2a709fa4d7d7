/* What build of NVRTC a file is: the part of every key that stands for the compiler. */
#ifndef KJIT_JIT_COMPILE_NVRTC_IDENTITY_H
#define KJIT_JIT_COMPILE_NVRTC_IDENTITY_H

#include "jit/compile/nvrtc_find.h"

/* Fill place->identity and place->file from place->library and place->builtins. KJIT_ERR_NO_NVRTC when either cannot be
 * read. */
kjit_status nvrtc_read_identity(struct nvrtc_place *place, kjit_error *error);

#endif
