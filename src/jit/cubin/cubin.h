/* What a cubin says of its kernels. An image that cannot be read says nothing. */
#ifndef KJIT_JIT_CUBIN_CUBIN_H
#define KJIT_JIT_CUBIN_CUBIN_H

#include <stdbool.h>

#include "base/text.h"

struct cubin_kernel {
  uint32_t max_threads; /* from __launch_bounds__, 0 if unstated */
  uint32_t parameter_count;
  bool has_info; /* false: the image says nothing of the above */
};

/* Is it a cubin at all? */
bool cubin_is_readable(const void *cubin, size_t bytes);

/* False when the image has no kernel of that name. */
bool cubin_find_kernel(const void *cubin, size_t bytes, const char *entry, struct cubin_kernel *kernel);

/* The sizes of its parameters, in order. False when the image does not say them all, or has more than `capacity`. */
bool cubin_parameter_sizes(const void *cubin, size_t bytes, const char *entry, uint32_t *sizes, size_t capacity);

/* Names of the kernels in it, one after the other; each NUL-terminated, alive as long as the image. NULL at the end;
 * *at is 0 at the beginning. */
const char *cubin_next_kernel(const void *cubin, size_t bytes, size_t *at);

/* "a, b, c": the kernels in it, "none" if there are none. */
void cubin_list_kernels(const void *cubin, size_t bytes, struct text *out);

#endif
