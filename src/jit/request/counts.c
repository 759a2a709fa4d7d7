/* Checks that the arrays of a build request are there, and that none has more elements than its bound. Pure functions;
 * any thread may call. */
#include "jit/request/counts.h"

#include "base/error.h"

kjit_status request_check_count(const char *name, size_t count, const void *array, size_t limit, kjit_error *error) {
  if (count && !array)
    return error_set(error, KJIT_ERR_INVALID_ARG, "%s: must not be NULL, because its count is %zu", name, count);
  if (count <= limit) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_ARG, "%s: %zu; at most %zu", name, count, limit);
}

kjit_status request_check_counts(const kjit_build_request *request, kjit_error *error) {
  const struct {
    const char *name;
    size_t count;
    const void *array;
    size_t limit;
  } rows[] = {{"headers", request->header_count, request->headers, REQUEST_HEADERS_MAX},
              {"include_dirs", request->include_dir_count, request->include_dirs, REQUEST_DIRS_MAX},
              {"defines", request->define_count, request->defines, REQUEST_DEFINES_MAX},
              {"options", request->option_count, request->options, REQUEST_OPTIONS_MAX},
              {"names", request->name_count, request->names, REQUEST_NAMES_MAX},
              {"parts", request->part_count, request->parts, REQUEST_PARTS_MAX}};
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < sizeof rows / sizeof *rows && status == KJIT_OK; i++)
    status = request_check_count(rows[i].name, rows[i].count, rows[i].array, rows[i].limit, error);
  return status;
}
