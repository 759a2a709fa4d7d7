/* Small files beside the entries, such as tuned tables: read whole, replaced whole.
 *
 * Reading opens the file without following links and refuses one that is not regular or too large. Replacing writes
 * a temporary file, makes it durable and renames it, so that a reader sees the old content or the new one. To change
 * a file, take its lock, read, replace, unlock: the lock is a byte of the cache's lock file, chosen by the digest of
 * the file's name, so it excludes threads and processes alike and is freed by the kernel if its holder dies.
 *
 * A lock is polled, because file locks have no wait with a time limit. It is registered with the builder's fork
 * guard, so that a forked child does not keep it. */
#include "jit/admin/side_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/digest.h"
#include "base/error.h"
#include "jit/builder_held.h"
#include "jit/cache/temp_file.h"

/* Between two attempts at the lock: short against the milliseconds that a holder needs to read and write a small file.
 */
#define POLL_NS ((int64_t)5000000)
#define WAIT_NS ((int64_t)SIDE_FILE_WAIT_S * 1000000000)

static struct disk_cache *tier_of(struct builder *builder, kjit_origin tier) {
  return tier == KJIT_ORIGIN_SITE ? &builder->site : &builder->user;
}

void side_file_path(struct builder *builder, const struct side_file *file, char *path, size_t capacity) {
  const struct cache_dir *dir = &builder->user.dir;
  path[0] = '\0';
  if (dir->folder >= 0) snprintf(path, capacity, "%s/%s/%s", dir->path, file->folder, file->name);
}

static kjit_status failed(const struct cache_dir *dir, const struct side_file *file, const char *what, int code,
                          kjit_error *error) {
  return error_set_cause(error, KJIT_ERR_IO, KJIT_CAUSE_ERRNO, -code, "%.300s/%s/%s could not be %s: %s", dir->path,
                         file->folder, file->name, what, strerror(-code));
}

/* The open file's size, if it is a regular file that is not too large. */
static int size_of(const struct file_ops *ops, int file, size_t limit, size_t *bytes) {
  struct stat status;
  const int done = ops->stat(ops->user, file, &status);
  if (done < 0) return done;
  if (!S_ISREG(status.st_mode)) return -EINVAL;
  if ((uintmax_t)status.st_size > limit) return -EFBIG;
  *bytes = (size_t)status.st_size;
  return 0;
}

static int read_open(const struct builder *builder, int opened, size_t limit, char **data, size_t *bytes) {
  const struct file_ops *ops = builder->ops;
  int done = size_of(ops, opened, limit, bytes);
  if (done < 0) return done;
  *data = mem_alloc(builder->mem, *bytes + 1);
  if (!*data) return -ENOMEM;
  done = file_read_all(ops, opened, *data, *bytes, 0);
  if (done < 0) {
    mem_free(builder->mem, *data);
    *data = NULL;
  }
  return done;
}

kjit_status side_file_read(struct builder *builder, kjit_origin tier, const struct side_file *file, char **data,
                           size_t *bytes, kjit_error *error) {
  const struct file_ops *ops = builder->ops;
  const struct cache_dir *dir = &tier_of(builder, tier)->dir;
  *data = NULL;
  *bytes = 0;
  if (dir->folder < 0) return KJIT_ERR_NOT_FOUND;
  const int folder = ops->open(ops->user, dir->folder, file->folder, O_RDONLY | O_DIRECTORY, 0);
  int done = folder;
  if (folder >= 0) {
    const int opened = ops->open(ops->user, folder, file->name, O_RDONLY | O_NONBLOCK, 0);
    done = opened < 0 ? opened : read_open(builder, opened, file->limit, data, bytes);
    if (opened >= 0) (void)ops->close(ops->user, opened);
    (void)ops->close(ops->user, folder);
  }
  if (done == 0) return KJIT_OK;
  if (done == -ENOENT) return KJIT_ERR_NOT_FOUND;
  return done == -ENOMEM ? error_no_memory(error) : failed(dir, file, "read", done, error);
}

struct side_file_lock {
  struct builder *builder;
  struct cache_lock lock;
};

/* The lock's byte follows from the digest of the name, as the byte of a key does from its digest. */
static void init_lock(struct side_file_lock *made, const struct side_file *file) {
  struct digest_state state;
  struct digest digest;
  digest_begin(&state);
  digest_add(&state, file->folder, strlen(file->folder) + 1);
  digest_add(&state, file->name, strlen(file->name) + 1);
  digest_end(&state, &digest);
  cache_lock_init(&made->lock, &digest);
}

/* Take the lock if the file system has locks; otherwise go on without one. */
static kjit_status wait_for_lock(struct side_file_lock *made, const struct side_file *file, kjit_error *error) {
  const struct file_ops *ops = made->builder->ops;
  const int folder = made->builder->user.dir.folder;
  const int64_t start_ns = ops->monotonic_ns(ops->user);
  while (cache_lock_try(&made->lock, ops, folder) == CACHE_LOCK_BUSY) {
    if (ops->monotonic_ns(ops->user) - start_ns >= WAIT_NS) {
      cache_lock_give_up(&made->lock, ops, folder);
      return error_set(error, KJIT_ERR_TIMEOUT, "%s/%s: another process has held its lock for %d seconds", file->folder,
                       file->name, SIDE_FILE_WAIT_S);
    }
    ops->sleep_ns(ops->user, POLL_NS);
  }
  return KJIT_OK;
}

kjit_status side_file_lock(struct builder *builder, const struct side_file *file, struct side_file_lock **out,
                           kjit_error *error) {
  *out = NULL;
  if (builder->user.dir.folder < 0 || !atomic_load(&builder->user.writable))
    return error_set(error, KJIT_ERR_IO, "%s/%s cannot be written: %s", file->folder, file->name,
                     builder->cache_error.status ? builder->cache_error.message
                                                 : "the cache folder is off or read-only");
  struct side_file_lock *made = mem_alloc(builder->mem, sizeof *made);
  if (!made) return error_no_memory(error);
  made->builder = builder;
  init_lock(made, file);
  builder_held_add(builder, &made->lock);
  const kjit_status status = wait_for_lock(made, file, error);
  if (status == KJIT_OK)
    *out = made;
  else
    side_file_unlock(made);
  return status;
}

void side_file_unlock(struct side_file_lock *lock) {
  if (!lock) return;
  struct builder *builder = lock->builder;
  builder_held_remove(builder, &lock->lock);
  cache_lock_release(&lock->lock, builder->ops, builder->user.dir.folder);
  mem_free(builder->mem, lock);
}

static int publish(const struct builder *builder, struct temp_file *temp, int folder, const struct side_file *file,
                   const void *data, size_t bytes) {
  const struct file_ops *ops = builder->ops;
  int done = temp_file_create(temp, ops, builder->user.dir.folder);
  if (done == 0) done = temp_file_write(temp, ops, data, bytes);
  if (done == 0) done = temp_file_publish(temp, ops, folder, file->name);
  return done == 0 ? ops->sync(ops->user, folder) : done;
}

kjit_status side_file_replace(struct builder *builder, const struct side_file *file, const void *data, size_t bytes,
                              kjit_error *error) {
  const struct file_ops *ops = builder->ops;
  const struct cache_dir *dir = &builder->user.dir;
  struct temp_file temp = {-1, -1, ""};
  if (dir->folder < 0) return error_set(error, KJIT_ERR_IO, "there is no cache folder to write %s to", file->name);
  const int folder = folder_open_or_make(ops, dir->folder, file->folder);
  const int done = folder < 0 ? folder : publish(builder, &temp, folder, file, data, bytes);
  temp_file_finish(&temp, ops);
  if (folder >= 0) (void)ops->close(ops->user, folder);
  return done == 0 ? KJIT_OK : failed(dir, file, "written", done, error);
}
