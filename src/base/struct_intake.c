#include "base/struct_intake.h"

#include <string.h>

#include "base/error.h"

/* Far above any of our structs: a larger struct_size is a struct that was never set up. */
#define LARGEST_STRUCT 65536

static _Bool all_zero(const char *bytes, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (bytes[i]) return 0;
  }
  return 1;
}

kjit_status struct_intake(void *local, size_t local_bytes, const void *given, size_t oldest_bytes, const char *name,
                          kjit_error *error) {
  size_t given_bytes;
  if (!given) return error_invalid(error, name, "missing");
  memcpy(&given_bytes, given, sizeof given_bytes);
  if (given_bytes < oldest_bytes || given_bytes > LARGEST_STRUCT) {
    return error_set(error, KJIT_ERR_INVALID_ARG, "%s.struct_size: %zu; set it to sizeof the struct, which is %zu",
                     name, given_bytes, local_bytes);
  }
  const size_t common = given_bytes < local_bytes ? given_bytes : local_bytes;
  if (!all_zero((const char *)given + common, given_bytes - common)) {
    return error_set(error, KJIT_ERR_UNSUPPORTED, "%s: uses a field that this library (%s) does not know", name,
                     KJIT_VERSION_STRING);
  }
  memset(local, 0, local_bytes);
  memcpy(local, given, common);
  memcpy(local, &local_bytes, sizeof local_bytes);
  return KJIT_OK;
}
