/* Records of what callers' sources include (source_memo.h), by fingerprint. Memory is searched first, then the cache
 * folder; a record that is found in the folder is kept in memory. A record does not change and counts its references,
 * so that no lock is held while files are compared with it. Any thread. */
#include "jit/source_memo.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "jit/cache/temp_file.h"
#include "jit/source_image.h"

#include "base/table.h"

#define READ_FOLDER "read"

/* Most records in memory, and in the folder; CUB's has 200 KB. Beyond the bound the oldest is removed. */
#define RECORDS_MAX 256

struct held {
  struct source_record record; /* first: its address is the record's */
  const struct mem *mem;
  struct source_image_head *image;
  struct source_file *files;
  atomic_uint references;
  UT_hash_handle hh;
};

struct source_memo {
  const struct mem *mem;
  struct disk_cache *disk;
  pthread_mutex_t lock;
  struct held *records; /* by image->fingerprint, the oldest first */
};

/* The clock is the one that file systems stamp files with, since its times are compared with files'. */
int64_t source_memo_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

struct source_memo *source_memo_create(const struct mem *mem, struct disk_cache *disk) {
  struct source_memo *memo = mem_alloc(mem, sizeof *memo);
  if (!memo) return NULL;
  memo->mem = mem;
  memo->disk = disk;
  if (!pthread_mutex_init(&memo->lock, NULL)) return memo;
  mem_free(mem, memo);
  return NULL;
}

void source_record_release(const struct source_record *record) {
  struct held *held = (struct held *)(uintptr_t)record;
  if (!held || atomic_fetch_sub(&held->references, 1) > 1) return;
  mem_free(held->mem, held->image);
  mem_free(held->mem, held->files);
  mem_free(held->mem, held);
}

static void drop(struct source_memo *memo, struct held *held) {
  const struct mem *mem = memo->mem;
  HASH_DEL(memo->records, held);
  source_record_release(&held->record);
}

void source_memo_destroy(struct source_memo *memo) {
  if (!memo) return;
  while (memo->records)
    drop(memo, memo->records);
  pthread_mutex_destroy(&memo->lock);
  mem_free(memo->mem, memo);
}

void source_memo_fork_prepare(struct source_memo *memo) {
  pthread_mutex_lock(&memo->lock);
}

void source_memo_fork_done(struct source_memo *memo) {
  pthread_mutex_unlock(&memo->lock);
}

/* Make a record over a sound image, which it takes over even when it fails. The caller gets one reference. */
static struct held *make(const struct mem *mem, struct source_image_head *image) {
  struct held *held = mem_alloc(mem, sizeof *held);
  struct source_file *files = mem_alloc_array(mem, image->file_count, sizeof *files);
  if (!held || !files) goto done;
  for (size_t i = 0; i < image->file_count; i++) {
    const struct source_image_file *file = &source_image_files(image)[i];
    files[i] = (struct source_file){.name = source_image_string(image, file->name),
                                    .path = source_image_string(image, file->path),
                                    .bytes = file->bytes,
                                    .digest = file->digest};
  }
  if (!source_set_seal(&held->record.set, files, image->file_count, mem)) goto done;
  held->record.set.withheld = true;
  held->record.everything = image->everything != 0;
  held->mem = mem;
  held->image = image;
  held->files = files;
  atomic_init(&held->references, 1);
  return held;

done:
  mem_free(mem, held);
  mem_free(mem, files);
  mem_free(mem, image);
  return NULL;
}

/* Put the record into the table, in place of an older one. The table takes a reference of its own. */
static void keep(struct source_memo *memo, struct held *held) {
  const struct mem *mem = memo->mem;
  bool added = true;
  struct held *older = NULL;
  pthread_mutex_lock(&memo->lock);
  HASH_FIND(hh, memo->records, &held->image->fingerprint, DIGEST_BYTES, older);
  if (older) drop(memo, older);
  if (HASH_COUNT(memo->records) >= RECORDS_MAX) drop(memo, memo->records);
  atomic_fetch_add(&held->references, 1);
  HASH_ADD_KEYPTR(hh, memo->records, &held->image->fingerprint, DIGEST_BYTES, held);
  pthread_mutex_unlock(&memo->lock);
  if (!added) source_record_release(&held->record);
}

/* -- The folder --------------------------------------------------------------------------------------------------- */

static void file_name(char name[DIGEST_HEX_BYTES], const struct digest *fingerprint) {
  digest_to_hex(fingerprint, name);
}

/* Nothing of the file is believed before source_image_is_sound() has seen all of it, because the folder may have been
 * damaged, or written by another version. */
static struct source_image_head *read_image(const struct source_memo *memo, int file) {
  const struct file_ops *ops = memo->disk->ops;
  struct stat status;
  if (ops->stat(ops->user, file, &status) < 0 || !S_ISREG(status.st_mode)) return NULL;
  if (status.st_size <= 0 || (uint64_t)status.st_size > SOURCE_IMAGE_LIMIT) return NULL;
  const size_t bytes = (size_t)status.st_size;
  struct source_image_head *image = mem_alloc(memo->mem, bytes);
  if (image && file_read_all(ops, file, image, bytes, 0) == 0 && source_image_is_sound(image, bytes)) return image;
  mem_free(memo->mem, image);
  return NULL;
}

/* O_NONBLOCK keeps a FIFO that somebody put there from stopping the process. A record under another fingerprint's name
 * is as good as none. */
static struct held *load(const struct source_memo *memo, const struct digest *fingerprint) {
  const struct file_ops *ops = memo->disk->ops;
  char path[sizeof READ_FOLDER + DIGEST_HEX_BYTES] = READ_FOLDER "/";
  if (memo->disk->dir.folder < 0) return NULL;
  file_name(path + sizeof READ_FOLDER, fingerprint);
  const int file = ops->open(ops->user, memo->disk->dir.folder, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
  if (file < 0) return NULL;
  struct source_image_head *image = read_image(memo, file);
  (void)ops->close(ops->user, file);
  if (image && !digest_equal(&image->fingerprint, fingerprint)) {
    mem_free(memo->mem, image);
    return NULL;
  }
  return image ? make(memo->mem, image) : NULL;
}

/* Remove the file that was written longest ago if the folder is beyond its bound. One is enough, because every store()
 * adds at most one and calls this. */
static void sweep(const struct source_memo *memo, int folder) {
  const struct file_ops *ops = memo->disk->ops;
  struct file_list *list = NULL;
  const char *name;
  char oldest[DIGEST_HEX_BYTES] = "";
  struct stat status;
  time_t oldest_time = 0;
  size_t count = 0;
  if (ops->list_open(ops->user, memo->disk->dir.folder, READ_FOLDER, &list) < 0) return;
  while (ops->list_next(ops->user, list, &name) > 0) {
    if (strlen(name) != DIGEST_HEX_BYTES - 1 || ops->stat_at(ops->user, folder, name, &status) < 0) continue;
    if (count++ && status.st_mtime >= oldest_time) continue;
    oldest_time = status.st_mtime;
    memcpy(oldest, name, DIGEST_HEX_BYTES);
  }
  ops->list_close(ops->user, list);
  if (count > RECORDS_MAX) (void)ops->unlink(ops->user, folder, oldest);
}

/* Failures are counted and logged, and end here: without the record the next process walks through the includes again,
 * which is slower and not wrong. */
static void store(struct source_memo *memo, const struct source_image_head *image) {
  const struct file_ops *ops = memo->disk->ops;
  struct temp_file temp = {-1, -1, ""};
  char name[DIGEST_HEX_BYTES];
  if (memo->disk->dir.folder < 0 || !atomic_load(&memo->disk->writable)) return;
  file_name(name, &image->fingerprint);
  const int folder = folder_open_or_make(ops, memo->disk->dir.folder, READ_FOLDER);
  int done = folder < 0 ? folder : temp_file_create(&temp, ops, memo->disk->dir.folder);
  if (done >= 0) done = temp_file_write(&temp, ops, image, image->bytes);
  if (done >= 0) done = temp_file_publish(&temp, ops, folder, name);
  temp_file_finish(&temp, ops);
  if (done >= 0) sweep(memo, folder);
  if (folder >= 0) (void)ops->close(ops->user, folder);
  if (done < 0) disk_cache_note(memo->disk, "remember what a source includes in", READ_FOLDER, done);
}

/* -- The table ---------------------------------------------------------------------------------------------------- */

/* Two threads may load one record at once. The later one replaces the earlier in the table, and both hold a sound
 * one. */
const struct source_record *source_memo_find(struct source_memo *memo, const struct digest *fingerprint,
                                             bool memory_only) {
  struct held *held = NULL;
  pthread_mutex_lock(&memo->lock);
  HASH_FIND(hh, memo->records, fingerprint, DIGEST_BYTES, held);
  if (held) atomic_fetch_add(&held->references, 1);
  pthread_mutex_unlock(&memo->lock);
  if (held || memory_only) return held ? &held->record : NULL;
  held = load(memo, fingerprint);
  if (!held) return NULL;
  keep(memo, held);
  return &held->record;
}

void source_memo_put(struct source_memo *memo, const struct digest *fingerprint, const struct custom_request *custom,
                     bool everything, int64_t started_ns) {
  struct source_image_head *image = source_image_make(memo->mem, fingerprint, custom, everything, started_ns);
  if (!image) return;
  store(memo, image);
  struct held *held = make(memo->mem, image);
  if (!held) return;
  keep(memo, held);
  source_record_release(&held->record);
}

/* -- Freshness ---------------------------------------------------------------------------------------------------- */

static bool has_content(const char *path, const struct source_image_watch *watch) {
  struct file_map map;
  struct digest digest;
  if (file_map_open(&map, path, watch->stamp.bytes + 1, NULL) != KJIT_OK) return false;
  digest_of(&digest, map.data ? map.data : "", map.bytes);
  file_map_close(&map);
  return digest_equal(&digest, &watch->digest);
}

/* A file that was changed in the same tick of the file system's clock in which it was read can have an unchanged stamp
 * and other bytes. A stamp that is so young is not believed, and the content is compared. */
static bool is_racy(const struct held *held, const struct file_stamp *stamp) {
  const int64_t last = stamp->modified_ns > stamp->changed_ns ? stamp->modified_ns : stamp->changed_ns;
  return last >= held->image->taken_ns - SOURCE_MEMO_RACY_NS;
}

static bool is_as_it_was(const struct held *held, const struct source_image_watch *watch,
                         struct file_folders *folders) {
  const char *path = source_image_string(held->image, watch->path);
  struct file_stamp now;
  file_stamp_read_in(folders, path, &now);
  if (!file_stamp_equal(&now, &watch->stamp)) return false;
  if (now.kind == FILE_STAMP_NONE || !is_racy(held, &now)) return true;
  return now.kind == FILE_STAMP_FILE && has_content(path, watch);
}

/* Folders are kept open from one watch to the next, because thousands of headers lie in few of them. */
bool source_record_is_fresh(const struct source_record *record) {
  const struct held *held = (const struct held *)record;
  const struct source_image_watch *watches = source_image_watches(held->image);
  struct file_folders folders;
  bool fresh = true;
  file_folders_open(&folders);
  for (uint64_t i = 0; i < held->image->watch_count && fresh; i++)
    fresh = is_as_it_was(held, &watches[i], &folders);
  file_folders_close(&folders);
  return fresh;
}
