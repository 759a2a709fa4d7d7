/* Looking after a builder's user folder: each function does what its namesake in include/kjit/cache.h promises. */
#ifndef KJIT_JIT_ADMIN_CACHE_ADMIN_H
#define KJIT_JIT_ADMIN_CACHE_ADMIN_H

#include <kjit/cache.h>

#include "jit/builder.h"

/* Each clears `error` first and is thread-safe. */
const char *builder_cache_path(const struct builder *builder);
kjit_status builder_cache_list(struct builder *builder, kjit_cache_visit visit, void *user, kjit_error *error);
kjit_status builder_cache_show(struct builder *builder, const char *prefix, kjit_cache_visit visit, void *user,
                               kjit_error *error);
kjit_status builder_cache_verify(struct builder *builder, uint32_t flags, kjit_cache_report *report, kjit_error *error);
kjit_status builder_cache_prune(struct builder *builder, uint64_t max_bytes, kjit_cache_report *report,
                                kjit_error *error);
kjit_status builder_cache_clear(struct builder *builder, kjit_cache_report *report, kjit_error *error);
kjit_status builder_cache_get_stats(struct builder *builder, kjit_cache_stats *stats, kjit_error *error);
kjit_status builder_cache_why(struct builder *builder, const char *key, char nearest[65],
                              kjit_cache_difference_visit visit, void *user, kjit_error *error);
kjit_status builder_cache_export(struct builder *builder, const char *path, const char *filter,
                                 kjit_cache_report *report, kjit_error *error);
kjit_status builder_cache_import(struct builder *builder, const char *path, kjit_cache_report *report,
                                 kjit_error *error);

#endif
