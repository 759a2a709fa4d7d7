#include "base/api_struct.h"

#include <string.h>

#include "base/error.h"

/* No struct of the API comes near it: a larger size is a field that nobody set, not a newer header. */
#define STRUCT_BYTES_MAX ((size_t)16384)

/* Zero when there is no usable struct. memcpy: the struct's type is not known here. */
static size_t given_bytes(const void *given, size_t least, const char *name, kjit_error *error) {
  size_t bytes = 0;
  if (given) memcpy(&bytes, given, sizeof bytes);
  if (bytes >= least && bytes <= STRUCT_BYTES_MAX) return bytes;
  if (!given) {
    error_invalid(error, name, "must not be NULL");
  } else {
    error_set(error, KJIT_ERR_INVALID_ARG, "%s.struct_size: %zu; set it to the size of the struct (at least %zu)", name,
              bytes, least);
  }
  return 0;
}

static _Bool all_zero(const unsigned char *bytes, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (bytes[i]) return 0;
  }
  return 1;
}

kjit_status api_struct_read(void *local, size_t known, size_t first, const void *given, const char *name,
                            kjit_error *error) {
  memset(local, 0, known);
  const size_t bytes = given_bytes(given, first, name, error);
  if (!bytes) return KJIT_ERR_INVALID_ARG;
  if (bytes > known && !all_zero((const unsigned char *)given + known, bytes - known)) {
    return error_set(error, KJIT_ERR_UNSUPPORTED,
                     "%s: uses a field from a newer header than this library, kjit %s, which knows %zu bytes of it",
                     name, kjit_version(), known);
  }
  memcpy(local, given, bytes < known ? bytes : known);
  memcpy(local, &known, sizeof known);
  return KJIT_OK;
}

kjit_status api_struct_write(void *given, const void *local, size_t known, const char *name, kjit_error *error) {
  const size_t bytes = given_bytes(given, sizeof bytes, name, error);
  if (!bytes) return KJIT_ERR_INVALID_ARG;
  const size_t common = bytes < known ? bytes : known;
  memcpy((char *)given + sizeof bytes, (const char *)local + sizeof bytes, common - sizeof bytes);
  memset((char *)given + common, 0, bytes - common);
  return KJIT_OK;
}
