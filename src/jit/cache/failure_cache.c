/* Failed compiles, remembered in the folder "failed" with the compiler's log.
 *
 * A failure is an entry without a cubin. Its age is the file's modification time, so that an answer expires without
 * anybody removing it. Each failure that is put also sweeps the folder: expired files go, and if there are more than
 * 256 the oldest goes, so a program that generates broken kernels fills no disk.
 *
 * Failures are rare and small, so they are not counted in "usage". Several processes may put and sweep at once:
 * files appear and disappear whole. */
#include "jit/cache/failure_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "jit/cache/temp_file.h"

#define FAILURE_FOLDER "failed"

/* One failure more than this pushes the oldest out. */
#define FAILURES_MAX 256

struct failure_sweep {
  int64_t lifetime_s;
  size_t left;
  time_t oldest_time;
  struct entry_name oldest;
};

/* Is the failure too old? A time that lies far in the future means that the clock was set back, and counts as too old,
 * because the failure would otherwise answer for longer than its lifetime. */
static bool expired(const struct file_ops *ops, const struct stat *status, int64_t lifetime_s) {
  const int64_t age_s = ops->wall_s(ops->user) - status->st_mtime;
  return age_s >= lifetime_s || age_s <= -lifetime_s;
}

/* Visit one file of the folder: remove it if it has expired, else see whether it is the oldest. */
static void consider(struct failure_sweep *sweep, const struct file_ops *ops, int folder, const char *file) {
  struct stat status;
  struct entry_name name;
  if (!entry_name_parse(&name, file) || ops->stat_at(ops->user, folder, file, &status) < 0) return;
  if (expired(ops, &status, sweep->lifetime_s)) {
    (void)ops->unlink(ops->user, folder, file);
    return;
  }
  if (!sweep->left++ || status.st_mtime < sweep->oldest_time) {
    sweep->oldest_time = status.st_mtime;
    sweep->oldest = name;
  }
}

static int sweep_open(struct failure_sweep *sweep, struct disk_cache *cache, int folder) {
  const struct file_ops *ops = cache->ops;
  struct file_list *list = NULL;
  const char *file;
  int done = ops->list_open(ops->user, cache->dir.folder, FAILURE_FOLDER, &list);
  while (done >= 0 && (done = ops->list_next(ops->user, list, &file)) > 0)
    consider(sweep, ops, folder, file);
  if (list) ops->list_close(ops->user, list);
  if (sweep->left > FAILURES_MAX) (void)ops->unlink(ops->user, folder, sweep->oldest.file);
  return done;
}

int failure_cache_sweep(struct disk_cache *cache, int64_t lifetime_s) {
  const struct file_ops *ops = cache->ops;
  struct failure_sweep sweep = {.lifetime_s = lifetime_s};
  const int folder = ops->open(ops->user, cache->dir.folder, FAILURE_FOLDER, O_RDONLY | O_DIRECTORY, 0);
  if (folder < 0) return folder == -ENOENT ? 0 : folder;
  const int done = sweep_open(&sweep, cache, folder);
  (void)ops->close(ops->user, folder);
  return done;
}

kjit_status failure_cache_get(struct disk_cache *cache, const struct key *key, int64_t lifetime_s,
                              struct entry_image *image, int64_t *age_s) {
  struct entry_name name;
  char path[sizeof FAILURE_FOLDER + sizeof name.file];
  struct stat status;
  const char *damage = NULL;
  *image = (struct entry_image){0};
  if (cache->dir.folder < 0 || !key->complete) return KJIT_ERR_NOT_FOUND;
  entry_name_make(&name, &key->request, &key->digest);
  snprintf(path, sizeof path, FAILURE_FOLDER "/%s", name.file);
  const int done = disk_cache_read_file(cache, path, image, &status, 0, &damage);
  if (done == -ENOMEM) return KJIT_ERR_NO_MEMORY;
  if (done < 0) return KJIT_ERR_NOT_FOUND;
  const struct entry *entry = &image->entry;
  *age_s = cache->ops->wall_s(cache->ops->user) - status.st_mtime;
  if (!expired(cache->ops, &status, lifetime_s) && !entry->cubin_bytes && entry->key_text.bytes == key->text.bytes &&
      !memcmp(entry->key_text.data, key->text.data, key->text.bytes))
    return KJIT_OK;
  entry_image_finish(image, cache->mem);
  return KJIT_ERR_NOT_FOUND;
}

void failure_cache_put(struct disk_cache *cache, const struct entry_name *name, const void *image, size_t bytes,
                       int64_t lifetime_s) {
  const struct file_ops *ops = cache->ops;
  struct temp_file temp = {-1, -1, ""};
  if (cache->dir.folder < 0 || !atomic_load(&cache->writable)) return;
  const int folder = folder_open_or_make(ops, cache->dir.folder, FAILURE_FOLDER);
  int done = folder < 0 ? folder : temp_file_create(&temp, ops, cache->dir.folder);
  if (done >= 0) done = temp_file_write(&temp, ops, image, bytes);
  if (done >= 0) done = temp_file_publish(&temp, ops, folder, name->file);
  temp_file_finish(&temp, ops);
  if (folder >= 0) (void)ops->close(ops->user, folder);
  if (done >= 0) done = failure_cache_sweep(cache, lifetime_s);
  if (done < 0) disk_cache_note(cache, "remember a failure in", FAILURE_FOLDER, done);
}
