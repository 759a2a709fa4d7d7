/* Which NVRTC options a caller may pass: those that change the code or the messages and nothing else, so that equal
 * requests give equal cubins and no file is read or written behind the key. */
#ifndef KJIT_JIT_COMPILE_OPTIONS_H
#define KJIT_JIT_COMPILE_OPTIONS_H

#include <kjit/common.h>

/* KJIT_ERR_INVALID_ARG: "options[<index>]: …" and why. */
kjit_status compile_option_check(const char *option, size_t index, kjit_error *error);

#endif
