/* `kjit cache path`, `list` and `show`: the entries of the user folder, each read, checked and handed to the caller's
 * visitor. A sound entry is shown through an artifact, because that has the parts of the key as strings; a damaged one
 * is shown with the reason. The visitor runs on the calling thread and no lock is held meanwhile. */
#include "jit/admin/cache_admin.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "jit/admin/admin_common.h"
#include "jit/cache/cache_walk.h"

const char *builder_cache_path(const struct builder *builder) {
  return builder->user.dir.path;
}

/* A walk that reads each entry for the caller's visitor. */
struct listing {
  struct builder *builder;
  kjit_cache_visit visit;
  void *user;
  bool visited;
};

static void fill_sound(kjit_cache_entry *seen, const struct entry *entry) {
  seen->key_text = entry->key_text.data;
  seen->family = entry->family.data;
  seen->label = entry->label.data;
  seen->log = entry->log.data;
  seen->cubin = entry->cubin;
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
  listing->visited = true;
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
  return admin_failed(builder, "list", cache_walk(&builder->user, list_entry, &listing), error);
}

kjit_status builder_cache_show(struct builder *builder, const char *prefix, kjit_cache_visit visit, void *user,
                               kjit_error *error) {
  struct listing listing = {.builder = builder, .visit = visit, .user = user};
  struct entry_name name;
  error_clear(error);
  if (!visit) return error_invalid(error, "visit", "must not be NULL");
  kjit_status status = admin_find(builder, prefix, &name, error);
  if (status != KJIT_OK) return status;
  status = admin_failed(builder, "read an entry of", list_entry(&listing, -1, &name), error);
  return status != KJIT_OK || listing.visited ? status : admin_gone(prefix, error);
}
