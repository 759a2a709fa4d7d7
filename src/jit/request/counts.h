/* How many elements each array of a build request may have. */
#ifndef KJIT_JIT_REQUEST_COUNTS_H
#define KJIT_JIT_REQUEST_COUNTS_H

#include <kjit/build.h>

/* More than people write or generators emit, and less than would make a key unwieldy. */
#define REQUEST_HEADERS_MAX 4096
#define REQUEST_DIRS_MAX    256
#define REQUEST_DEFINES_MAX 1024
#define REQUEST_OPTIONS_MAX 256
#define REQUEST_NAMES_MAX   4096
#define REQUEST_PARTS_MAX   1024

/* An array that is there, with at most `limit` elements; `name` is the field's. KJIT_ERR_INVALID_ARG. */
kjit_status request_check_count(const char *name, size_t count, const void *array, size_t limit, kjit_error *error);

/* The same for every array of a request. It comes before anything that reads or copies them. */
kjit_status request_check_counts(const kjit_build_request *request, kjit_error *error);

#endif
