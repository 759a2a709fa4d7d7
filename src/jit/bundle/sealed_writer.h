/* Making a sealed program: requests with the texts of their closures in, bytes out. The same requests in the same order
 * give the same bytes. */
#ifndef KJIT_JIT_BUNDLE_SEALED_WRITER_H
#define KJIT_JIT_BUNDLE_SEALED_WRITER_H

#include <stdbool.h>

#include <kjit/bundle.h>

#include "jit/bundle/sealed.h"

struct sealed_writer;

/* `compress` NULL: frames hold their content as it is. `mem` must outlive the writer. NULL when out of memory. */
struct sealed_writer *sealed_writer_create(const struct mem *mem, kjit_compress_fn compress, void *user);
void sealed_writer_destroy(struct sealed_writer *writer); /* accepts NULL */

/* Take a copy of a request with `sources`, which has its texts. KJIT_ERR_UNSUPPORTED beyond the format's bounds,
 * KJIT_ERR_NO_MEMORY. */
kjit_status sealed_writer_add(struct sealed_writer *writer, const struct jit_request *request,
                              const struct source_set *sources, kjit_error *error);

/* The program, mem_free. KJIT_ERR_INVALID_ARG without a request; KJIT_ERR_UNSUPPORTED beyond the bounds;
 * KJIT_ERR_INTERNAL when the compressor fails; KJIT_ERR_NO_MEMORY. */
kjit_status sealed_writer_build(struct sealed_writer *writer, bool with_texts, void **data, size_t *bytes,
                                kjit_error *error);

#endif
