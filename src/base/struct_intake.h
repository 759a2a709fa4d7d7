/* Taking in, and filling, a caller's struct that begins with `size_t struct_size` and may be older or newer than this
 * library. */
#ifndef KJIT_BASE_STRUCT_INTAKE_H
#define KJIT_BASE_STRUCT_INTAKE_H

#include <kjit/common.h>

/* Copy `given` into `local`, whose size here is `local_bytes`: what an older, smaller struct lacks is zero, hence
 * default. KJIT_ERR_INVALID_ARG when struct_size is below `oldest_bytes`, the first size ever released;
 * KJIT_ERR_UNSUPPORTED when the struct is newer and what this library does not know of it is not zero. `name` is for
 * the message. local->struct_size becomes local_bytes. */
kjit_status struct_intake(void *local, size_t local_bytes, const void *given, size_t oldest_bytes, const char *name,
                          kjit_error *error);

/* Fill a caller's struct from `local`: cut to the caller's size, zero where the caller's is larger; its struct_size
 * stays. KJIT_ERR_INVALID_ARG for NULL or an impossible size. */
kjit_status struct_fill(void *given, const void *local, size_t local_bytes, const char *name, kjit_error *error);

#endif
