/* Which NVRTC options a caller may pass: those that change the code or the messages and nothing else, so that equal
 * requests give equal cubins and no file is read or written behind the key. */
#ifndef KJIT_JIT_REQUEST_COMPILE_OPTIONS_H
#define KJIT_JIT_REQUEST_COMPILE_OPTIONS_H

#include <kjit/build.h>

#include "base/mem.h"

/* The options in front of the request's own, canonical order. They are part of the key. Not among them: the
 * architecture, which the key has as the target, and --no-cache, which changes no byte and is passed to the NVRTCs that
 * know it (12.9). */
size_t compile_standing_options(const char *const **out);

/* KJIT_ERR_INVALID_ARG: "options[<index>]: …" and why. */
kjit_status compile_option_check(const char *option, size_t index, kjit_error *error);

/* The one spelling of a checked option, by its long name, so that equal options make equal keys. As snprintf. */
size_t compile_option_canonical(const char *option, char *out, size_t capacity);

/* The request's options as the compiler is given them: canonical, and behind them what its defines ask of it. `*count`
 * must be 0; it is right after a failure, too. The texts and the array are from mem. */
kjit_status compile_options_take(char ***taken, size_t *count, const struct mem *mem, const kjit_build_request *request,
                                 kjit_error *error);

#endif
