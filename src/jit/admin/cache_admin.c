#include "jit/admin/cache_admin_internal.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/struct_intake.h"
#include "jit/cache/cache_walk.h"

#define PREFIX_MIN 4 /* hex digits: fewer would name too much */

kjit_status cache_admin_failed(struct builder *builder, const char *what, int code, kjit_error *error) {
  if (code >= 0) return KJIT_OK;
  if (code == -ENOMEM) return error_no_memory(error);
  return error_set_cause(error, KJIT_ERR_IO, KJIT_CAUSE_ERRNO, -code, "cannot %s cache folder %s: %s", what,
                         builder->user.dir.path, code == -EBUSY ? "another process holds it" : strerror(-code));
}

kjit_status cache_admin_check_report(const kjit_cache_report *report, kjit_error *error) {
  if (!report || report->struct_size >= sizeof report->struct_size) return KJIT_OK;
  return error_invalid(error, "report", "struct_size must be set");
}

kjit_status cache_admin_fill_report(kjit_cache_report *report, const kjit_cache_report *found, kjit_error *error) {
  return report ? struct_fill(report, found, sizeof *found, "report", error) : KJIT_OK;
}

kjit_status cache_admin_gone(const char *prefix, kjit_error *error) {
  return error_set(error, KJIT_ERR_NOT_FOUND, "key %s: its entry was removed a moment ago", prefix);
}

static _Bool has_folder(const struct builder *builder) {
  return builder->user.dir.folder >= 0;
}

kjit_status cache_admin_need_writable(const struct builder *builder, kjit_error *error) {
  if (atomic_load(&builder->user.writable)) return KJIT_OK;
  if (!has_folder(builder)) return error_set(error, KJIT_ERR_IO, "there is no cache folder in use");
  return error_set(error, KJIT_ERR_IO, "cache folder %s is used read-only", builder->user.dir.path);
}

const char *builder_cache_path(const struct builder *builder) {
  return builder->user.dir.path;
}

/* A walk that reads each entry for the caller's visitor. */
struct listing {
  struct builder *builder;
  kjit_cache_visit visit;
  void *user;
  _Bool visited;
};

static void fill_sound(kjit_cache_entry *seen, const struct entry *entry) {
  seen->key_text = entry->key_text.data;
  seen->family = entry->family.data;
  seen->label = entry->label.data;
  seen->log = entry->log.data;
  seen->cubin_bytes = entry->cubin_bytes;
  seen->registers = entry->figures.registers;
  seen->spill_bytes = entry->figures.spill_bytes;
  seen->shared_bytes = entry->figures.shared_bytes;
  seen->compile_ms = (double)entry->figures.compile_ns / 1e6;
}

/* A sound entry is shown through an artifact, which has the key's parts as strings. */
static int visit_sound(struct listing *listing, kjit_cache_entry *seen, struct entry_image *image) {
  static const struct digest none = {{0}};
  kjit_artifact *artifact = NULL;
  kjit_artifact_info info = {.struct_size = sizeof info};
  if (artifact_create(&artifact, listing->builder->mem, image, &none, KJIT_ORIGIN_USER, NULL) != KJIT_OK)
    return -ENOMEM;
  int done = kjit_artifact_get_info(artifact, &info, NULL) == KJIT_OK ? 0 : -EINVAL;
  fill_sound(seen, &artifact_image(artifact)->entry);
  seen->arch = info.arch;
  seen->entry = info.entry;
  if (done == 0) done = listing->visit(listing->user, seen) != 0;
  kjit_artifact_release(artifact);
  return done;
}

static int list_entry(void *user, int folder, const struct entry_name *name) {
  struct listing *listing = user;
  struct entry_image image;
  struct stat status;
  const char *damage = NULL;
  (void)folder;
  const int done = disk_cache_read(&listing->builder->user, name, &image, &status, &damage);
  if (done == -ENOENT || done == -ESTALE) return 0;
  if (done == -ENOMEM) return done;
  kjit_cache_entry seen = {.struct_size = sizeof seen, .key_text = "", .family = "", .label = "", .arch = ""};
  seen.entry = seen.log = "";
  listing->visited = 1;
  seen.key = entry_name_key(name);
  seen.bytes = (uint64_t)status.st_size;
  seen.last_used = status.st_mtime;
  seen.origin = KJIT_ORIGIN_USER;
  seen.status = done < 0 ? KJIT_ERR_CORRUPT : KJIT_OK;
  seen.damage = done == -EBADMSG ? damage : done < 0 ? strerror(-done) : "";
  return done < 0 ? listing->visit(listing->user, &seen) != 0 : visit_sound(listing, &seen, &image);
}

kjit_status builder_cache_list(struct builder *builder, kjit_cache_visit visit, void *user, kjit_error *error) {
  struct listing listing = {.builder = builder, .visit = visit, .user = user};
  error_clear(error);
  if (!visit) return error_invalid(error, "visit", "must not be NULL");
  return cache_admin_failed(builder, "list", cache_walk(&builder->user, list_entry, &listing), error);
}

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

kjit_status cache_admin_find(struct builder *builder, const char *prefix, struct entry_name *found, kjit_error *error) {
  struct search search = {.prefix = prefix, .bytes = prefix ? strlen(prefix) : 0};
  if (search.bytes < PREFIX_MIN || search.bytes >= DIGEST_HEX_BYTES ||
      strspn(prefix, "0123456789abcdef") != search.bytes)
    return error_invalid(error, "key", "must be 4 to 64 lower-case hex digits");
  const int done = cache_walk(&builder->user, match_name, &search);
  if (done < 0) return cache_admin_failed(builder, "search", done, error);
  *found = search.found;
  if (search.matches > 1)
    return error_set(error, KJIT_ERR_INVALID_ARG, "key %s: several entries begin so; give more digits", prefix);
  return search.matches ? KJIT_OK : error_set(error, KJIT_ERR_NOT_FOUND, "key %s: no entry begins so", prefix);
}

kjit_status builder_cache_show(struct builder *builder, const char *prefix, kjit_cache_visit visit, void *user,
                               kjit_error *error) {
  struct listing listing = {.builder = builder, .visit = visit, .user = user};
  struct entry_name name;
  error_clear(error);
  if (!visit) return error_invalid(error, "visit", "must not be NULL");
  kjit_status status = cache_admin_find(builder, prefix, &name, error);
  if (status != KJIT_OK) return status;
  status = cache_admin_failed(builder, "read an entry of", list_entry(&listing, -1, &name), error);
  return status != KJIT_OK || listing.visited ? status : cache_admin_gone(prefix, error);
}
