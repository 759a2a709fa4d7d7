/* Keeping the texts of callers' sources by their digests (text_store.h).
 *
 * 1. text_store_put() goes through the files of a request. One that is there already is left as it is, or stamped
 *    anew when its stamp is an hour old, so that what is in use stays; any other is written under a private name and
 *    renamed.
 * 2. A folder in which something was written is swept: the oldest files go until it is within its bound.
 * 3. text_store_get() reads a text and compares its digest with its name.
 *
 * Threads and processes may do all of that at once: files appear and disappear whole, and a file that two write is the
 * same file. */
#include "jit/cache/text_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "jit/cache/temp_file.h"

#define TEXT_FOLDER "texts"
#define SHARDS      16

/* As often as this is the stamp of a text in use renewed. */
#define STAMP_GRAIN_S 3600

/* Most texts in a shard, because a sweep looks at each of them. */
#define SHARD_FILES_MAX 256

/* The shards that a put has opened. */
struct putting {
  struct disk_cache *cache;
  int folders[SHARDS]; /* -1: not opened */
  bool written[SHARDS];
};

static void shard_path(char path[sizeof TEXT_FOLDER + 2], unsigned shard) {
  (void)snprintf(path, sizeof TEXT_FOLDER + 2, TEXT_FOLDER "/%x", shard % SHARDS);
}

static unsigned shard_of(const struct digest *digest) {
  return digest->bytes[0] >> 4;
}

static uint64_t shard_bytes(const struct disk_cache *cache) {
  return cache->max_text_bytes / SHARDS;
}

static bool is_below(const char *path, const struct text_store_skip *skip) {
  for (size_t i = 0; i < skip->count && path; i++) {
    const size_t bytes = strlen(skip->dirs[i]);
    if (!strncmp(path, skip->dirs[i], bytes) && path[bytes] == '/') return true;
  }
  return false;
}

/* -- Keeping ------------------------------------------------------------------------------------------------------ */

/* Renew the stamp of a file that is in use. */
static void stamp(const struct file_ops *ops, int folder, const char *name) {
  const int file = ops->open(ops->user, folder, name, O_WRONLY | O_NONBLOCK | O_NOCTTY, 0);
  if (file < 0) return;
  (void)ops->touch(ops->user, file);
  (void)ops->close(ops->user, file);
}

/* Is the text there? A file of another size is what a power cut left, and is written again. */
static bool is_kept(const struct file_ops *ops, int folder, const char *name, size_t bytes) {
  struct stat status;
  if (ops->stat_at(ops->user, folder, name, &status) < 0) return false;
  if (!S_ISREG(status.st_mode) || (uint64_t)status.st_size != bytes) return false;
  if (ops->wall_s(ops->user) - status.st_mtime >= STAMP_GRAIN_S) stamp(ops, folder, name);
  return true;
}

static int write_text(const struct disk_cache *cache, int folder, const char *name, const struct source_file *source) {
  const struct file_ops *ops = cache->ops;
  struct temp_file temp;
  int done = temp_file_create(&temp, ops, cache->dir.folder);
  if (done >= 0) done = file_write_all(ops, temp.file, source->text, source->bytes, 0);
  if (done >= 0)
    (void)ops->touch(ops->user, temp.file); /* a finer time than the system's, so that the newest is known */
  if (done >= 0) done = temp_file_publish(&temp, ops, folder, name);
  temp_file_finish(&temp, ops);
  return done;
}

static int put_file(struct putting *putting, const struct source_file *source) {
  const struct file_ops *ops = putting->cache->ops;
  const unsigned shard = shard_of(&source->digest);
  char path[sizeof TEXT_FOLDER + 2], name[DIGEST_HEX_BYTES];
  int *folder = &putting->folders[shard];
  shard_path(path, shard);
  digest_to_hex(&source->digest, name);
  if (*folder < 0) *folder = folder_open_or_make(ops, putting->cache->dir.folder, path);
  if (*folder < 0) return *folder;
  if (is_kept(ops, *folder, name, source->bytes)) return 0;
  putting->written[shard] = true;
  return write_text(putting->cache, *folder, name, source);
}

/* What a look through a shard found. */
struct shard_look {
  uint64_t files, bytes;
  struct timespec oldest_time;
  char oldest[DIGEST_HEX_BYTES];
};

static bool is_older(const struct timespec *a, const struct timespec *b) {
  return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

static int look_through(const struct disk_cache *cache, int folder, unsigned shard, struct shard_look *look) {
  const struct file_ops *ops = cache->ops;
  struct file_list *list = NULL;
  struct stat status;
  const char *name;
  char path[sizeof TEXT_FOLDER + 2];
  *look = (struct shard_look){0};
  shard_path(path, shard);
  int done = ops->list_open(ops->user, cache->dir.folder, path, &list);
  while (done >= 0 && (done = ops->list_next(ops->user, list, &name)) > 0) {
    if (strlen(name) != DIGEST_HEX_BYTES - 1 || ops->stat_at(ops->user, folder, name, &status) < 0) continue;
    look->bytes += (uint64_t)status.st_size;
    if (look->files++ && !is_older(&status.st_mtim, &look->oldest_time)) continue;
    look->oldest_time = status.st_mtim;
    memcpy(look->oldest, name, DIGEST_HEX_BYTES);
  }
  if (list) ops->list_close(ops->user, list);
  return done;
}

/* Remove the oldest until the shard is within its bounds. A file that cannot be removed ends it, because the next look
 * would find it again. */
static int sweep(const struct disk_cache *cache, int folder, unsigned shard, uint64_t max_bytes, uint64_t max_files) {
  const struct file_ops *ops = cache->ops;
  for (;;) {
    struct shard_look look;
    int done = look_through(cache, folder, shard, &look);
    if (done < 0 || (look.bytes <= max_bytes && look.files <= max_files)) return done;
    done = ops->unlink(ops->user, folder, look.oldest);
    if (done < 0 && done != -ENOENT) return done;
  }
}

void text_store_put(struct disk_cache *cache, const struct source_set *sources, const struct text_store_skip *skip) {
  const struct file_ops *ops = cache->ops;
  struct putting putting = {.cache = cache};
  const uint64_t bound = shard_bytes(cache);
  int done = 0;
  if (cache->dir.folder < 0 || !bound || !atomic_load(&cache->writable) || sources->withheld) return;
  memset(putting.folders, -1, sizeof putting.folders);
  for (size_t i = 0; i < sources->count && done >= 0; i++) {
    const struct source_file *source = &sources->files[i];
    if (source->bytes > TEXT_STORE_FILE_MAX || source->bytes > bound || is_below(source->path, skip)) continue;
    done = put_file(&putting, source);
  }
  for (unsigned shard = 0; shard < SHARDS; shard++) {
    if (done >= 0 && putting.written[shard]) done = sweep(cache, putting.folders[shard], shard, bound, SHARD_FILES_MAX);
    if (putting.folders[shard] >= 0) (void)ops->close(ops->user, putting.folders[shard]);
  }
  if (done < 0) disk_cache_note(cache, "keep a source's text in", TEXT_FOLDER, done);
}

/* -- Finding ------------------------------------------------------------------------------------------------------ */

/* 0; -errno; -EBADMSG for what is not the text of that digest. */
static int read_text(const struct disk_cache *cache, int file, const struct digest *digest, char **text,
                     size_t *bytes) {
  const struct file_ops *ops = cache->ops;
  struct stat status;
  struct digest found;
  const int known = ops->stat(ops->user, file, &status);
  if (known < 0) return known;
  if (!S_ISREG(status.st_mode) || status.st_size < 0 || (uint64_t)status.st_size > TEXT_STORE_FILE_MAX) return -EBADMSG;
  *bytes = (size_t)status.st_size;
  *text = mem_alloc(cache->mem, *bytes + 1);
  if (!*text) return -ENOMEM;
  const int done = file_read_all(ops, file, *text, *bytes, 0);
  if (done < 0) return done;
  (*text)[*bytes] = '\0';
  digest_of(&found, *text, *bytes);
  return digest_equal(&found, digest) ? 0 : -EBADMSG;
}

kjit_status text_store_get(struct disk_cache *cache, const char *digest, size_t digits, char **text, size_t *bytes) {
  const struct file_ops *ops = cache->ops;
  struct digest wanted;
  char path[sizeof TEXT_FOLDER + 2];
  char name[DIGEST_HEX_BYTES];
  *text = NULL;
  if (cache->dir.folder < 0 || !digest_from_hex(&wanted, digest, digits)) return KJIT_ERR_NOT_FOUND;
  shard_path(path, shard_of(&wanted));
  digest_to_hex(&wanted, name);
  const int folder = ops->open(ops->user, cache->dir.folder, path, O_RDONLY | O_DIRECTORY, 0);
  if (folder < 0) return KJIT_ERR_NOT_FOUND;
  const int file = ops->open(ops->user, folder, name, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
  const int done = file < 0 ? file : read_text(cache, file, &wanted, text, bytes);
  if (file >= 0) (void)ops->close(ops->user, file);
  if (done == -EBADMSG && atomic_load(&cache->writable)) (void)ops->unlink(ops->user, folder, name);
  (void)ops->close(ops->user, folder);
  if (done == 0) return KJIT_OK;
  mem_free(cache->mem, *text);
  *text = NULL;
  return done == -ENOMEM ? KJIT_ERR_NO_MEMORY : KJIT_ERR_NOT_FOUND;
}

int text_store_clear(struct disk_cache *cache) {
  const struct file_ops *ops = cache->ops;
  int done = 0;
  for (unsigned shard = 0; shard < SHARDS && done >= 0; shard++) {
    char path[sizeof TEXT_FOLDER + 2];
    shard_path(path, shard);
    const int folder = ops->open(ops->user, cache->dir.folder, path, O_RDONLY | O_DIRECTORY, 0);
    if (folder == -ENOENT) continue;
    done = folder < 0 ? folder : sweep(cache, folder, shard, 0, 0);
    if (folder >= 0) (void)ops->close(ops->user, folder);
  }
  return done;
}
