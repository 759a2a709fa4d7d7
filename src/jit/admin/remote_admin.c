/* `kjit cache verify --remote` and `kjit cache sign`: each sound entry of the user's folder is compared with what the
 * stores have, one by one. What is damaged here is passed over, since `kjit cache verify` tells it. One thread; other
 * processes may publish and evict meanwhile. */
#include "jit/admin/remote_admin.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/struct_intake.h"
#include "jit/admin/admin_common.h"
#include "jit/cache/cache_walk.h"

struct comparison {
  struct builder *builder;
  bool push;
  kjit_remote_report report;
};

static int compare_entry(void *user, int folder, const struct entry_name *name) {
  struct comparison *comparison = user;
  struct disk_cache *cache = &comparison->builder->user;
  struct entry_image image;
  struct stat status;
  struct digest key;
  const char *damage = NULL;
  (void)folder;
  const int done = disk_cache_read(cache, name, &image, &status, &damage);
  if (done == -ENOMEM) return done;
  if (done < 0) return 0;
  if (digest_from_hex(&key, entry_name_key(name), DIGEST_HEX_BYTES - 1))
    remote_compare(comparison->builder->remote, &key, image.data, image.bytes, comparison->push, &comparison->report);
  entry_image_finish(&image, cache->mem);
  return 0;
}

kjit_status builder_remote_compare(struct builder *builder, bool push, kjit_remote_report *report, kjit_error *error) {
  struct comparison comparison = {.builder = builder, .push = push};
  error_clear(error);
  if (!report) return error_invalid(error, "report", "must not be NULL");
  if (!builder->remote)
    return error_set(error, KJIT_ERR_UNSUPPORTED,
                     "no remote store: set KJIT_CACHE_REMOTE to its URL; the log says why one that is set is not used");
  if (builder->user.dir.folder < 0)
    return error_set(error, KJIT_ERR_NOT_FOUND, "there is no cache folder; 'kjit doctor' says why");
  const int done = cache_walk(&builder->user, compare_entry, &comparison);
  const kjit_status status = admin_failed(builder, "read", done, error);
  if (status != KJIT_OK) return status;
  return struct_fill(report, &comparison.report, sizeof comparison.report, "report", error);
}
