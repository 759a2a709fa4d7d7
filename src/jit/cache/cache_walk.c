/* Going through the entries of a cache folder: list "entries" once to see which of the 256 shards exist, then list
 * each shard and visit every file whose name is an entry's. Other files are ignored.
 *
 * No lock is held, so other processes publish and evict meanwhile: a visitor may find that its entry has gone, and
 * an entry that is published behind the walk's back may be missed. The visitor runs on the calling thread. */
#include "jit/cache/cache_walk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static int walk_open_shard(struct disk_cache *cache, int folder, const char *path, cache_walk_visit visit, void *user) {
  const struct file_ops *ops = cache->ops;
  struct file_list *list = NULL;
  struct entry_name name;
  const char *file;
  int done = ops->list_open(ops->user, cache->dir.folder, path, &list);
  while (done >= 0 && (done = ops->list_next(ops->user, list, &file)) > 0) {
    if (!entry_name_parse(&name, file)) continue;
    done = visit(user, folder, &name);
    if (done) break;
  }
  if (list) ops->list_close(ops->user, list);
  return done;
}

int cache_walk_shard(struct disk_cache *cache, unsigned shard, cache_walk_visit visit, void *user) {
  const struct file_ops *ops = cache->ops;
  char path[sizeof ENTRY_FOLDER + 3];
  if (cache->dir.folder < 0) return 0;
  entry_name_shard(path, shard);
  const int folder = ops->open(ops->user, cache->dir.folder, path, O_RDONLY | O_DIRECTORY, 0);
  if (folder == -ENOENT) return 0;
  if (folder < 0) return folder;
  const int done = walk_open_shard(cache, folder, path, visit, user);
  (void)ops->close(ops->user, folder);
  return done;
}

static void note_shard(const char *name, bool present[ENTRY_SHARDS]) {
  char *end = NULL;
  const unsigned long shard = strtoul(name, &end, 16);
  if (strlen(name) == 2 && !*end && shard < ENTRY_SHARDS) present[shard] = 1;
}

int cache_walk_present(struct disk_cache *cache, bool present[ENTRY_SHARDS]) {
  const struct file_ops *ops = cache->ops;
  struct file_list *list = NULL;
  const char *name;
  memset(present, 0, ENTRY_SHARDS * sizeof *present);
  if (cache->dir.folder < 0) return 0;
  int done = ops->list_open(ops->user, cache->dir.folder, ENTRY_FOLDER, &list);
  if (done == -ENOENT) return 0;
  while (done >= 0 && (done = ops->list_next(ops->user, list, &name)) > 0)
    note_shard(name, present);
  if (list) ops->list_close(ops->user, list);
  return done;
}

int cache_walk(struct disk_cache *cache, cache_walk_visit visit, void *user) {
  bool present[ENTRY_SHARDS];
  int done = cache_walk_present(cache, present);
  for (unsigned shard = 0; shard < ENTRY_SHARDS && !done; shard++)
    if (present[shard]) done = cache_walk_shard(cache, shard, visit, user);
  return done;
}
