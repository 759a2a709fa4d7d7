/* Publishing an entry, in this order:
 *
 *   1. write the bytes to a private file in "tmp" and make them durable        temp_file.h
 *   2. lock the file "usage" and make room for the entry                        cache_usage.h, cache_evict.h
 *   3. write the new totals to "usage"
 *   4. rename the private file to the entry's name, unlock "usage"
 *   5. make the folder durable; the first time, look after the folder          cache_tidy.h
 *
 * A process may be killed after each step. What it leaves is a private file, which a later sweep removes, or totals
 * that are too high, which a later eviction corrects; never a broken entry and never a folder beyond its bound.
 *
 * Any thread of any process may publish at any time: they queue at step 2. */
#include "jit/cache/cache_publish.h"

#include <errno.h>
#include <stdbool.h>

#include "jit/cache/cache_tidy.h"
#include "jit/cache/cache_usage.h"
#include "jit/cache/temp_file.h"

/* Add the entry to its shard's amount; `replaced` is the size of the file that it replaces, if `replaces`. */
static void add_entry(struct cache_amount *shard, uint64_t bytes, uint64_t replaced, bool replaces) {
  shard->bytes = shard->bytes + bytes > replaced ? shard->bytes + bytes - replaced : bytes;
  shard->entries += !replaces;
}

/* Steps 3 and 4. The totals are written before the rename: a process that is killed between the two leaves totals that
 * are too high, so the folder can never exceed its bound unnoticed. */
static int rename_counted(struct cache_usage *usage, struct temp_file *temp, int folder, const struct entry_name *name,
                          size_t bytes) {
  const struct file_ops *ops = usage->cache->ops;
  struct cache_amount *const shard = &usage->block.totals.shards[entry_name_shard_number(name)];
  const struct cache_amount before = *shard;
  struct stat status;
  const bool replaces = ops->stat_at(ops->user, folder, name->file, &status) == 0;
  add_entry(shard, bytes, replaces ? (uint64_t)status.st_size : 0, replaces);
  int done = cache_usage_write(usage);
  if (done == 0) done = temp_file_publish(temp, ops, folder, name->file);
  if (done == 0) return 0;
  *shard = before;
  (void)cache_usage_write(usage);
  return done;
}

/* Steps 2 to 4. */
static int rename_into_place(struct disk_cache *cache, struct temp_file *temp, int folder,
                             const struct entry_name *name, size_t bytes) {
  struct cache_usage usage;
  if (bytes > cache->max_bytes) return -EFBIG;
  int done = cache_usage_open(&usage, cache);
  if (done < 0) return done;
  done = cache_usage_make_room(&usage, bytes);
  if (done == 0) done = rename_counted(&usage, temp, folder, name, bytes);
  cache_usage_close(&usage);
  return done;
}

int cache_publish(struct disk_cache *cache, const struct entry_name *name, const void *image, size_t bytes) {
  const struct file_ops *ops = cache->ops;
  struct temp_file temp = {-1, -1, ""};
  if (cache->dir.folder < 0 || !atomic_load(&cache->writable)) return -EROFS;
  const int folder = folder_open_or_make(ops, cache->dir.folder, name->folder);
  int done = folder < 0 ? folder : temp_file_create(&temp, ops, cache->dir.folder);
  if (done >= 0) done = temp_file_write(&temp, ops, image, bytes);
  if (done >= 0) done = rename_into_place(cache, &temp, folder, name, bytes);
  temp_file_finish(&temp, ops);
  if (done >= 0) done = ops->sync(ops->user, folder);
  if (folder >= 0) (void)ops->close(ops->user, folder);
  if (done < 0) {
    disk_cache_note(cache, "publish", name->path, done);
    return done;
  }
  cache_tidy_once(cache);
  count_add(cache->counters, COUNT_published, 1);
  count_add(cache->counters, COUNT_bytes_written, bytes);
  return 0;
}
