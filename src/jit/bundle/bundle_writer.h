/* Making a bundle: kernels in, bytes out. The same kernels give the same bytes, in whatever order they come and
 * wherever they were compiled: how long each compile took is left out. */
#ifndef KJIT_JIT_BUNDLE_BUNDLE_WRITER_H
#define KJIT_JIT_BUNDLE_BUNDLE_WRITER_H

#include <kjit/bundle.h>

#include "base/mem.h"
#include "jit/cache/entry.h"

struct bundle_writer;

/* `compress` NULL: kernels are stored as they are. `mem` must outlive the writer. NULL when out of memory. */
struct bundle_writer *bundle_writer_create(const struct mem *mem, kjit_compress_fn compress, void *user);
void bundle_writer_destroy(struct bundle_writer *writer); /* accepts NULL */

/* Take a copy of a kernel's entry. Of two answers to one request, which differ by the compiler, the one with the
 * greater key text stays. KJIT_ERR_INVALID_ARG for an entry without kernel; KJIT_ERR_UNSUPPORTED beyond the format's
 * bounds; KJIT_ERR_NO_MEMORY. */
kjit_status bundle_writer_add_entry(struct bundle_writer *writer, const struct entry *entry, kjit_error *error);

/* The bundle, mem_free. KJIT_ERR_NO_MEMORY; KJIT_ERR_UNSUPPORTED beyond the bounds; KJIT_ERR_INTERNAL when the
 * compressor fails. The writer may be added to and finished again. */
kjit_status bundle_writer_build(struct bundle_writer *writer, void **data, size_t *bytes, kjit_error *error);

#endif
