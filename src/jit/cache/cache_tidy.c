/* What the first publish of a process does for the folder: write CACHEDIR.TAG, by which backup programs recognise a
 * cache, and remove the temporary files that killed writers left behind. A flag in struct disk_cache makes sure that
 * one thread does it, once. Failures are counted and logged, and the publish goes on. */
#include "jit/cache/cache_tidy.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "jit/cache/temp_file.h"

#define TAG_FILE "CACHEDIR.TAG"

/* The signature and wording that the convention prescribes: https://bford.info/cachedir/ */
static const char tag_text[] = "Signature: 8a477f597d28d172789f06886806bc55\n"
                               "# This file is a cache directory tag created by kjit.\n"
                               "# For information about cache directory tags, see https://bford.info/cachedir/\n";

static int write_tag(const struct disk_cache *cache) {
  const struct file_ops *ops = cache->ops;
  struct temp_file temp;
  struct stat status;
  int done = ops->stat_at(ops->user, cache->dir.folder, TAG_FILE, &status);
  if (done != -ENOENT) return done;
  done = temp_file_create(&temp, ops, cache->dir.folder);
  if (done == 0) done = temp_file_write(&temp, ops, tag_text, strlen(tag_text));
  if (done == 0) done = temp_file_publish(&temp, ops, cache->dir.folder, TAG_FILE);
  temp_file_finish(&temp, ops);
  return done;
}

void cache_tidy_once(struct disk_cache *cache) {
  struct temp_sweep sweep = {.spare_young = true, .remove = true};
  if (atomic_exchange(&cache->tidied, 1)) return;
  int done = write_tag(cache);
  if (done < 0) disk_cache_note(cache, "write", TAG_FILE, done);
  done = temp_file_sweep(&sweep, cache->ops, cache->dir.folder);
  if (done < 0) disk_cache_note(cache, "sweep", "tmp", done);
}
