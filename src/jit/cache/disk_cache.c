/* One cache folder: looking an entry up, checking it, and removing a bad one.
 *
 * A look-up makes the entry's name from the digests of the key, opens the file without following links, reads it
 * whole into memory, checks every byte of it (entry_read.c) and compares the key's text. With a known compiler there
 * is exactly one name. Without one, all entries of the request share a prefix, and the most recently used sound one
 * answers.
 *
 * A bad entry is unlinked, counted and reported as a miss, so that the builder compiles. Errors of the file system
 * are counted and logged, and are misses too; only missing memory is passed on.
 *
 * Any number of threads and processes may read, publish and remove at the same time: entries appear and disappear
 * whole, by rename and unlink. The struct itself changes only by its atomics. */
#include "jit/cache/disk_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

void entry_image_finish(struct entry_image *image, const struct mem *mem) {
  mem_free(mem, image->data);
  *image = (struct entry_image){0};
}

void disk_cache_note(struct disk_cache *cache, const char *what, const char *where, int code) {
  count_add(cache->counters, COUNT_cache_errors, 1);
  log_write(cache->log, KJIT_LOG_WARNING, "cache: cannot %s %s/%s: %s", what, cache->dir.path, where, strerror(-code));
  /* A read-only or foreign folder does not become writable by itself, so it is not tried again for each kernel. */
  if (code == -EROFS || code == -EACCES || code == -EPERM) atomic_store(&cache->writable, 0);
}

/* Read the file into the image's memory. It is not mapped, because what was checked must not change afterwards, and
 * because a truncated file or a failing disk is then an error here instead of a SIGBUS later. */
static int read_all(const struct disk_cache *cache, int file, struct entry_image *image, const char **damage) {
  const int done = file_read_all(cache->ops, file, image->data, image->bytes, 0);
  if (done == -ENODATA)
    *damage = "shorter than it was a moment ago";
  else if (done < 0)
    return done;
  else
    *damage = entry_read(image->data, image->bytes, &image->entry);
  return *damage ? -EBADMSG : 0;
}

static int read_open_file(const struct disk_cache *cache, int file, struct entry_image *image,
                          const struct stat *status, const char **damage) {
  if (!S_ISREG(status->st_mode))
    *damage = "not a regular file";
  else if (status->st_size < ENTRY_HEADER_BYTES + ENTRY_CHECKSUM_BYTES)
    *damage = "shorter than an empty entry";
  else if ((uint64_t)status->st_size > ENTRY_MAX_BYTES)
    *damage = "larger than an entry may be";
  if (*damage) return -EBADMSG;
  image->bytes = (size_t)status->st_size;
  image->data = mem_alloc(cache->mem, image->bytes);
  return image->data ? read_all(cache, file, image, damage) : -ENOMEM;
}

int disk_cache_read_file(const struct disk_cache *cache, const char *path, struct entry_image *image,
                         struct stat *status, bool used, const char **damage) {
  const struct file_ops *ops = cache->ops;
  *damage = NULL;
  *image = (struct entry_image){0};
  *status = (struct stat){0};
  /* O_NONBLOCK, because opening a FIFO that somebody planted here would otherwise wait for a writer. */
  const int file = ops->open(ops->user, cache->dir.folder, path, O_RDONLY | O_NONBLOCK, 0);
  if (file == -ELOOP) *damage = "a symbolic link";
  if (file < 0) return *damage ? -EBADMSG : file;
  int done = ops->stat(ops->user, file, status);
  if (done == 0) done = read_open_file(cache, file, image, status, damage);
  /* A use is recorded as the modification time, because many mounts keep no access times. */
  if (done == 0 && used && ops->wall_s(ops->user) - status->st_mtime >= cache->use_grain_s)
    (void)ops->touch(ops->user, file);
  (void)ops->close(ops->user, file);
  if (done < 0) entry_image_finish(image, cache->mem);
  return done;
}

int disk_cache_read(const struct disk_cache *cache, const struct entry_name *name, struct entry_image *image,
                    struct stat *status, const char **damage) {
  const int done = disk_cache_read_file(cache, name->path, image, status, 0, damage);
  if (done < 0) return done;
  struct entry_name proper;
  const struct entry_text *text = &image->entry.key_text;
  entry_name_of_key(&proper, text->data, text->bytes);
  if (!strcmp(proper.file, name->file)) return 0;
  *damage = "the entry of another key";
  entry_image_finish(image, cache->mem);
  return -EBADMSG;
}

void disk_cache_set_aside(struct disk_cache *cache, const struct entry_name *name, ino_t inode, const char *damage) {
  const struct file_ops *ops = cache->ops;
  struct stat status;
  count_add(cache->counters, COUNT_rebuilt_entries, 1);
  log_write(cache->log, KJIT_LOG_WARNING, "cache: %s/%s is set aside: %s", cache->dir.path, name->path, damage);
  if (!atomic_load(&cache->writable)) return;
  const int folder = ops->open(ops->user, cache->dir.folder, name->folder, O_RDONLY | O_DIRECTORY, 0);
  int done = folder < 0 ? folder : ops->stat_at(ops->user, folder, name->file, &status);
  if (done >= 0 && (!inode || inode == status.st_ino)) done = ops->unlink(ops->user, folder, name->file);
  if (done < 0 && done != -ENOENT) disk_cache_note(cache, "remove", name->path, done);
  if (folder >= 0) (void)ops->close(ops->user, folder);
}

/* Open the folder once, because an NFS client remembers "no such file" for a while and asks the server again after an
 * open. */
static void refresh_folder(const struct disk_cache *cache, const struct entry_name *name) {
  const struct file_ops *ops = cache->ops;
  const int folder = ops->open(ops->user, cache->dir.folder, name->folder, O_RDONLY | O_DIRECTORY, 0);
  if (folder >= 0) (void)ops->close(ops->user, folder);
}

/* Does the entry answer the key? With a known compiler the texts must be equal, without one the request's parts. */
static bool answers(const struct key *key, const struct entry *entry) {
  const size_t bytes = key->complete ? key->text.bytes : key->request_bytes;
  if (key->complete && entry->key_text.bytes != bytes) return false;
  return entry->key_text.bytes >= bytes && !memcmp(entry->key_text.data, key->text.data, bytes);
}

static kjit_status get_named(struct disk_cache *cache, const struct key *key, const struct entry_name *name,
                             struct entry_image *image) {
  struct stat status;
  const char *damage = NULL;
  int done = disk_cache_read_file(cache, name->path, image, &status, atomic_load(&cache->writable), &damage);
  if (done == -ESTALE) done = disk_cache_read_file(cache, name->path, image, &status, 0, &damage);
  if (done == 0 && !answers(key, &image->entry)) {
    damage = "the entry of another key";
    done = -EBADMSG;
    entry_image_finish(image, cache->mem);
  }
  if (done == 0) {
    count_add(cache->counters, COUNT_bytes_read, image->bytes);
    return KJIT_OK;
  }
  if (done == -ENOMEM) return KJIT_ERR_NO_MEMORY;
  if (done == -EBADMSG)
    disk_cache_set_aside(cache, name, status.st_ino, damage);
  else if (done != -ENOENT && done != -ENOTDIR)
    disk_cache_note(cache, "read", name->path, done);
  return KJIT_ERR_NOT_FOUND;
}

static bool before(const struct timespec *a, const struct timespec *b) {
  return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

/* The most recently used entry of a request; false when there is none. */
static bool find_any_compiler(struct disk_cache *cache, const struct entry_name *like, struct entry_name *found) {
  const struct file_ops *ops = cache->ops;
  struct file_list *list = NULL;
  struct stat status;
  struct entry_name name;
  const char *file;
  struct timespec newest = {0, 0};
  bool any = false;
  const int folder = ops->open(ops->user, cache->dir.folder, like->folder, O_RDONLY | O_DIRECTORY, 0);
  if (folder < 0) return false;
  int done = ops->list_open(ops->user, cache->dir.folder, like->folder, &list);
  while (done >= 0 && (done = ops->list_next(ops->user, list, &file)) > 0) {
    if (strncmp(file, like->file, ENTRY_NAME_REQUEST_BYTES) || !entry_name_parse(&name, file)) continue;
    if (ops->stat_at(ops->user, folder, file, &status) < 0 || (any && before(&status.st_mtim, &newest))) continue;
    *found = name;
    newest = status.st_mtim;
    any = true;
  }
  if (list) ops->list_close(ops->user, list);
  (void)ops->close(ops->user, folder);
  return any;
}

kjit_status disk_cache_get(struct disk_cache *cache, const struct key *key, bool refresh, struct entry_image *image) {
  struct entry_name name, other;
  *image = (struct entry_image){0};
  if (cache->dir.folder < 0) return KJIT_ERR_NOT_FOUND;
  entry_name_make(&name, &key->request, &key->digest);
  if (refresh) refresh_folder(cache, &name);
  if (key->complete) return get_named(cache, key, &name, image);
  /* A damaged entry is removed and the next one tried. Four tries, because several damaged answers to one request mean
   * a broken folder, and compiling is then faster. */
  kjit_status status = KJIT_ERR_NOT_FOUND;
  for (int tries = 0; tries < 4 && status == KJIT_ERR_NOT_FOUND; tries++) {
    if (!find_any_compiler(cache, &name, &other)) break;
    status = get_named(cache, key, &other, image);
  }
  return status;
}
