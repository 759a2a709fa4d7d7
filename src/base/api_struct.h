/* Structs that cross the public API begin with `size_t struct_size` and grow only at the end, so caller and library may
 * know different lengths of one struct. All copying between the two goes through here. */
#ifndef KJIT_BASE_API_STRUCT_H
#define KJIT_BASE_API_STRUCT_H

#include <kjit/common.h>

/* Take a caller's struct into `local`, which has `known` bytes; `first` is the size of the struct's first version.
 * What a shorter one lacks is zero. A longer one is fine while everything that this library does not know is zero,
 * KJIT_ERR_UNSUPPORTED otherwise. KJIT_ERR_INVALID_ARG for NULL or an impossible size. `name` is for messages. */
kjit_status api_struct_read(void *local, size_t known, size_t first, const void *given, const char *name,
                            kjit_error *error);

/* Give `local` to a caller: cut to the caller's length, zero where the caller's is longer; struct_size stays the
 * caller's. KJIT_ERR_INVALID_ARG as above; `given` is then untouched. */
kjit_status api_struct_write(void *given, const void *local, size_t known, const char *name, kjit_error *error);

#endif
