/* A bundle from the entries of the user folder. Export and import (cache_admin.h) are made of it. */
#ifndef KJIT_JIT_ADMIN_CACHE_BUNDLE_H
#define KJIT_JIT_ADMIN_CACHE_BUNDLE_H

#include <kjit/cache.h>

#include "jit/builder.h"
#include "jit/bundle/bundle_writer.h"

/* Add the sound entries that the filter accepts to `writer`, as kjit_bundle_writer_add_cache() promises. The caller has
 * cleared `error`, which is left as it is on success. Thread-safe as long as the writer is this thread's. */
kjit_status builder_cache_bundle(struct builder *builder, struct bundle_writer *writer, const char *filter,
                                 kjit_cache_report *report, kjit_error *error);

#endif
