/* The part of a source that a precompiled header can stand for: the #include lines at its beginning, with the defines
 * of the prologue in front of them.
 *
 * NVRTC uses a precompiled header only if everything up to `#pragma nv_hdrstop` is the same text, and does not notice
 * when a header in memory has changed since. So the preamble is reduced to its directives, which many kernels share
 * whatever their comments, and is known by a digest of everything that it is made from. */
#ifndef KJIT_JIT_COMPILE_PREAMBLE_H
#define KJIT_JIT_COMPILE_PREAMBLE_H

#include <stdbool.h>

#include "base/text.h"
#include "jit/request/request.h"

/* "--create-pch=" and a path. */
#define PCH_OPTION_BYTES 600

/* Headers that are smaller than this altogether compile in less time than a precompiled header saves: fp16's 1.7 MB
 * cost 50 ms. */
#define PREAMBLE_LEAST_BYTES ((size_t)1 << 20)

/* False: nothing here is worth precompiling, or the options give code that names its source lines. The digest covers
 * compiler, options, target, the preamble and every header that the source can reach. */
bool preamble_identify(const struct jit_request *request, const char *identity, struct digest *digest);

/* The whole source, equal in meaning to prologue and main file, with the preamble in front (`alone`: the preamble and
 * nothing else). False when the source has none. */
bool preamble_write(const struct jit_request *request, bool alone, struct text *out);

/* Take NVRTC's note that it used or made a precompiled header out of a log. False when it is not there. */
bool preamble_take_note(char *log);

#endif
