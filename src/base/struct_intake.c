/* Structs that cross the ABI. Each begins with `size_t struct_size`, by which a program that was compiled against
 * another version of the headers says how much of the struct it has.
 *
 * Taking one in copies the common part and requires the rest, if the caller's struct is larger, to be zero: a field
 * that this library does not know must not be asked for in vain. Filling one copies the common part and zeroes the
 * rest. The type of the struct is not known here, so everything is done by memcpy(). No state; any thread may call. */
#include "base/struct_intake.h"

#include <stdbool.h>
#include <string.h>

#include "base/error.h"

/* Far above the largest public struct. A larger struct_size means that the caller never set it. */
#define LARGEST_STRUCT 65536

static bool all_zero(const char *bytes, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (bytes[i]) return false;
  }
  return true;
}

/* The caller's struct_size, or 0 with an error when there is no struct or its size is impossible. */
static size_t size_given(const void *given, size_t least, size_t local_bytes, const char *name, kjit_error *error) {
  size_t bytes;
  if (!given) {
    error_invalid(error, name, "must not be NULL");
    return 0;
  }
  memcpy(&bytes, given, sizeof bytes);
  if (bytes >= least && bytes <= LARGEST_STRUCT) return bytes;
  error_set(error, KJIT_ERR_INVALID_ARG, "%s.struct_size: %zu; set it to sizeof the struct, which is %zu", name, bytes,
            local_bytes);
  return 0;
}

kjit_status struct_intake(void *local, size_t local_bytes, const void *given, size_t oldest_bytes, const char *name,
                          kjit_error *error) {
  const size_t given_bytes = size_given(given, oldest_bytes, local_bytes, name, error);
  if (!given_bytes) return KJIT_ERR_INVALID_ARG;
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

kjit_status struct_fill(void *given, const void *local, size_t local_bytes, const char *name, kjit_error *error) {
  const size_t given_bytes = size_given(given, sizeof given_bytes, local_bytes, name, error);
  if (!given_bytes) return KJIT_ERR_INVALID_ARG;
  const size_t common = given_bytes < local_bytes ? given_bytes : local_bytes;
  memcpy((char *)given + sizeof given_bytes, (const char *)local + sizeof given_bytes, common - sizeof given_bytes);
  memset((char *)given + common, 0, given_bytes - common);
  return KJIT_OK;
}
