/* Error messages, checks and the search by key prefix that the functions of cache_admin.h share. */
#ifndef KJIT_JIT_ADMIN_ADMIN_COMMON_H
#define KJIT_JIT_ADMIN_ADMIN_COMMON_H

#include <kjit/cache.h>

#include "jit/builder.h"
#include "jit/builder_internal.h"

/* KJIT_OK for a code of 0 or more. For -errno: KJIT_ERR_NO_MEMORY, or KJIT_ERR_IO with the message
 * "cannot <what> cache folder <path>: <reason>". */
kjit_status admin_failed(struct builder *builder, const char *what, int code, kjit_error *error);

/* KJIT_ERR_IO when there is no user folder, or when it is used read-only. */
kjit_status admin_need_writable(const struct builder *builder, kjit_error *error);

/* Find the one entry whose key begins with `prefix`, 4 to 64 lower-case hex digits. KJIT_ERR_NOT_FOUND when no key
 * does, KJIT_ERR_INVALID_ARG when several do. */
kjit_status admin_find(struct builder *builder, const char *prefix, struct entry_name *found, kjit_error *error);

/* The error for an entry that another process removed between the search and the reading: KJIT_ERR_NOT_FOUND. */
kjit_status admin_gone(const char *prefix, kjit_error *error);

/* Before the work: refuse a report without struct_size. `report` may be NULL. */
kjit_status admin_check_report(const kjit_cache_report *report, kjit_error *error);

/* After the work: copy what was found into the caller's report. `report` may be NULL. */
kjit_status admin_fill_report(kjit_cache_report *report, const kjit_cache_report *found, kjit_error *error);

#endif
