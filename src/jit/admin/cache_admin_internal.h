/* What the files behind cache_admin.h share. */
#ifndef KJIT_JIT_ADMIN_CACHE_ADMIN_INTERNAL_H
#define KJIT_JIT_ADMIN_CACHE_ADMIN_INTERNAL_H

#include "jit/admin/cache_admin.h"
#include "jit/builder_internal.h"

/* "cannot <what> cache folder …" for a negative code; KJIT_OK for others. */
kjit_status cache_admin_failed(struct builder *builder, const char *what, int code, kjit_error *error);

/* KJIT_ERR_IO when there is no folder, or one that is only read. */
kjit_status cache_admin_need_writable(const struct builder *builder, kjit_error *error);

/* The one entry whose key begins with these digits. */
kjit_status cache_admin_find(struct builder *builder, const char *prefix, struct entry_name *found, kjit_error *error);

/* KJIT_ERR_NOT_FOUND: found by its first digits, and removed by another process before it could be read. */
kjit_status cache_admin_gone(const char *prefix, kjit_error *error);

/* A caller's report, which may be NULL: before the work, and after it. */
kjit_status cache_admin_check_report(const kjit_cache_report *report, kjit_error *error);
kjit_status cache_admin_fill_report(kjit_cache_report *report, const kjit_cache_report *found, kjit_error *error);

#endif
