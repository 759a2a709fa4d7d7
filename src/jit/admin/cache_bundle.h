/* Between the user folder and bundles: a bundle from its entries, and its entries from a bundle. */
#ifndef KJIT_JIT_ADMIN_CACHE_BUNDLE_H
#define KJIT_JIT_ADMIN_CACHE_BUNDLE_H

#include "jit/builder.h"
#include "jit/bundle/bundle_writer.h"

/* Add the sound entries that the filter accepts. As kjit_bundle_writer_add_cache(); clears no error. */
kjit_status builder_cache_bundle(struct builder *builder, struct bundle_writer *writer, const char *filter,
                                 kjit_cache_report *report, kjit_error *error);

/* Is this file a bundle? False also when it cannot be read. */
_Bool cache_bundle_is(const char *path);

/* Publish a bundle's kernels in the user folder, counting in `report`. Refused as the builder's own bundles are. */
kjit_status builder_cache_import_bundle(struct builder *builder, const char *path, kjit_cache_report *report,
                                        kjit_error *error);

#endif
