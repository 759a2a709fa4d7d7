/* What the functions behind `kjit cache` have in common: their error messages, their checks of the caller's report, and
 * the search for an entry by the first digits of its key. Nothing here keeps state, so every function is thread-safe.
 */
#include "jit/admin/admin_common.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/struct_intake.h"
#include "jit/cache/cache_walk.h"

/* Fewer hex digits than these would match many entries in any cache of ordinary size. */
#define PREFIX_MIN 4

kjit_status admin_failed(struct builder *builder, const char *what, int code, kjit_error *error) {
  if (code >= 0) return KJIT_OK;
  if (code == -ENOMEM) return error_no_memory(error);
  return error_set_cause(error, KJIT_ERR_IO, KJIT_CAUSE_ERRNO, -code, "cannot %s cache folder %s: %s", what,
                         builder->user.dir.path, code == -EBUSY ? "another process holds it" : strerror(-code));
}

kjit_status admin_check_report(const kjit_cache_report *report, kjit_error *error) {
  if (!report || report->struct_size >= sizeof report->struct_size) return KJIT_OK;
  return error_invalid(error, "report", "struct_size must be set");
}

kjit_status admin_fill_report(kjit_cache_report *report, const kjit_cache_report *found, kjit_error *error) {
  return report ? struct_fill(report, found, sizeof *found, "report", error) : KJIT_OK;
}

kjit_status admin_gone(const char *prefix, kjit_error *error) {
  return error_set(error, KJIT_ERR_NOT_FOUND, "key %s: its entry was removed a moment ago", prefix);
}

kjit_status admin_need_writable(const struct builder *builder, kjit_error *error) {
  if (atomic_load(&builder->user.writable)) return KJIT_OK;
  if (builder->user.dir.folder < 0) return error_set(error, KJIT_ERR_IO, "there is no cache folder in use");
  return error_set(error, KJIT_ERR_IO, "cache folder %s is used read-only", builder->user.dir.path);
}

/* ---- Search by prefix ---- */

struct search {
  const char *prefix;
  size_t bytes;
  struct entry_name found;
  size_t matches;
};

static int match_name(void *user, int folder, const struct entry_name *name) {
  struct search *search = user;
  (void)folder;
  if (strncmp(entry_name_key(name), search->prefix, search->bytes)) return 0;
  if (!search->matches++) search->found = *name;
  return search->matches > 1;
}

kjit_status admin_find(struct builder *builder, const char *prefix, struct entry_name *found, kjit_error *error) {
  struct search search = {.prefix = prefix, .bytes = prefix ? strlen(prefix) : 0};
  if (search.bytes < PREFIX_MIN || search.bytes >= DIGEST_HEX_BYTES ||
      strspn(prefix, "0123456789abcdef") != search.bytes)
    return error_invalid(error, "key", "must be 4 to 64 lower-case hex digits");
  const int done = cache_walk(&builder->user, match_name, &search);
  if (done < 0) return admin_failed(builder, "search", done, error);
  *found = search.found;
  if (search.matches > 1)
    return error_set(error, KJIT_ERR_INVALID_ARG, "key %s: several entries begin so; give more digits", prefix);
  return search.matches ? KJIT_OK : error_set(error, KJIT_ERR_NOT_FOUND, "key %s: no entry begins so", prefix);
}
