#include "jit/cache/cache_usage.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/hash.h"
#include "jit/cache/cache_evict.h"

#define USAGE_FILE  "usage"
#define USAGE_MAGIC 0x31455347554a4bu /* "KJUGSE1": changes with the block's layout */

/* Whoever holds the account works for some milliseconds, and leaves it changed; one that holds it for longer is
 * stopped, or scans a hundred thousand entries. Then an entry is rather not published than published beyond the bound.
 * While the account does change, others are served, as on a disk that is slow for all of them: that is worth a longer
 * wait. */
#define STILL_PATIENCE_NS  ((int64_t)5 * 1000000000)
#define MOVING_PATIENCE_NS ((int64_t)30 * 1000000000)
#define POLL_FIRST_NS      20000
#define POLL_LAST_NS       2000000

static uint64_t checksum(const struct usage_block *block) {
  return hash_64(block, offsetof(struct usage_block, checksum));
}

static _Bool read_block(const struct disk_cache *cache, int file, struct usage_block *block) {
  return file_read_all(cache->ops, file, block, sizeof *block, 0) == 0 && block->magic == USAGE_MAGIC &&
         block->checksum == checksum(block);
}

/* Changes with each write of the block. Never zero. */
static uint64_t read_seal(const struct disk_cache *cache, int file) {
  uint64_t seal = 0;
  const off_t at = (off_t)offsetof(struct usage_block, checksum);
  const int done = file_read_all(cache->ops, file, &seal, sizeof seal, at);
  return done == 0 && seal ? seal : 1;
}

/* Who gave up waiting once does not wait again as long as the account stands as it stood then. */
static int lock_patiently(struct disk_cache *cache, int file) {
  const struct file_ops *ops = cache->ops;
  const uint64_t stuck = atomic_load(&cache->account_stuck);
  const int64_t start_ns = ops->monotonic_ns(ops->user);
  int64_t moved_ns = start_ns;
  uint64_t last = 0;
  for (int64_t pause_ns = POLL_FIRST_NS;; pause_ns = pause_ns < POLL_LAST_NS ? pause_ns * 2 : pause_ns) {
    const int locked = ops->lock(ops->user, file, 0, 1);
    /* A file system without locks: the account may then lose an update, which the next recount finds. */
    if (locked != -EAGAIN) return 0;
    const uint64_t seal = read_seal(cache, file);
    const int64_t now_ns = ops->monotonic_ns(ops->user);
    if (seal == stuck) return -EBUSY;
    if (seal != last) moved_ns = now_ns;
    last = seal;
    if (now_ns - moved_ns > STILL_PATIENCE_NS || now_ns - start_ns > MOVING_PATIENCE_NS) {
      atomic_store(&cache->account_stuck, seal);
      return -EBUSY;
    }
    ops->sleep_ns(ops->user, pause_ns);
  }
}

/* What was counted since the last time, by wrapping subtraction: two threads here at once still add up. */
static void add_statistics(struct cache_usage *usage) {
  struct cache_counters *counters = usage->cache->counters;
  for (int i = 0; i < CACHE_COUNTERS; i++) {
    const uint64_t now = count_get(counters, (enum cache_counter)i);
    usage->block.counts[i] += now - atomic_exchange(&counters->flushed[i], now);
  }
}

void cache_usage_be_patient(struct disk_cache *cache) {
  atomic_store(&cache->account_stuck, 0);
}

int cache_usage_open(struct cache_usage *usage, struct disk_cache *cache) {
  const struct file_ops *ops = cache->ops;
  usage->cache = cache;
  usage->file = ops->open(ops->user, cache->dir.folder, USAGE_FILE, O_RDWR | O_CREAT, 0600);
  if (usage->file < 0) return usage->file;
  int done = lock_patiently(cache, usage->file);
  if (done == 0 && !read_block(cache, usage->file, &usage->block)) {
    memset(&usage->block, 0, sizeof usage->block);
    usage->block.magic = USAGE_MAGIC;
    done = cache_evict_recount(cache, &usage->block);
  }
  if (done < 0)
    cache_usage_close(usage);
  else
    add_statistics(usage);
  return done;
}

int cache_usage_write(struct cache_usage *usage) {
  usage->block.checksum = checksum(&usage->block);
  return file_write_all(usage->cache->ops, usage->file, &usage->block, sizeof usage->block, 0);
}

void cache_usage_close(struct cache_usage *usage) {
  const struct file_ops *ops = usage->cache->ops;
  if (usage->file < 0) return;
  (void)ops->unlock(ops->user, usage->file, 0, 1);
  (void)ops->close(ops->user, usage->file);
  usage->file = -1;
}

void cache_usage_peek(struct disk_cache *cache, struct usage_block *block) {
  const struct file_ops *ops = cache->ops;
  const int file = cache->dir.folder < 0 ? -1 : ops->open(ops->user, cache->dir.folder, USAGE_FILE, O_RDONLY, 0);
  if (file < 0 || !read_block(cache, file, block)) memset(block, 0, sizeof *block);
  if (file >= 0) (void)ops->close(ops->user, file);
}

struct usage_shard cache_usage_total(const struct usage_block *block) {
  struct usage_shard total = {0, 0};
  for (int i = 0; i < ENTRY_SHARDS; i++) {
    total.bytes += block->shards[i].bytes;
    total.entries += block->shards[i].entries;
  }
  return total;
}

static void account(struct usage_shard *shard, uint64_t bytes, uint64_t replaced, _Bool replaces) {
  shard->bytes = shard->bytes + bytes > replaced ? shard->bytes + bytes - replaced : bytes;
  shard->entries += !replaces;
}

static int publish_held(struct cache_usage *usage, struct temp_file *temp, int folder, const struct entry_name *name,
                        size_t bytes) {
  struct disk_cache *cache = usage->cache;
  const struct file_ops *ops = cache->ops;
  const struct evict_goal goal = {cache->max_bytes - bytes, cache->max_entries - 1, EVICT_SAMPLE};
  struct usage_shard *shard = &usage->block.shards[entry_name_shard_number(name)];
  struct stat status;
  int done = cache_evict(cache, &usage->block, &goal, NULL);
  if (done < 0) return done;
  const struct usage_shard before = *shard;
  const _Bool replaces = ops->stat_at(ops->user, folder, name->file, &status) == 0;
  account(shard, bytes, replaces ? (uint64_t)status.st_size : 0, replaces);
  /* Before the rename: who is killed between the two leaves an account that is too high, never too low. */
  done = cache_usage_write(usage);
  if (done == 0) done = temp_file_publish(temp, ops, folder, name->file);
  if (done == 0) return 0;
  *shard = before;
  (void)cache_usage_write(usage);
  return done;
}

int cache_usage_publish(struct disk_cache *cache, struct temp_file *temp, int folder, const struct entry_name *name,
                        size_t bytes) {
  struct cache_usage usage;
  if (bytes > cache->max_bytes) return -EFBIG;
  int done = cache_usage_open(&usage, cache);
  if (done < 0) return done;
  done = publish_held(&usage, temp, folder, name, bytes);
  cache_usage_close(&usage);
  return done;
}

static _Bool has_news(const struct cache_counters *counters) {
  for (int i = 0; i < CACHE_COUNTERS; i++)
    if (count_get(counters, (enum cache_counter)i) != atomic_load(&counters->flushed[i])) return 1;
  return 0;
}

void cache_usage_flush(struct disk_cache *cache) {
  struct cache_usage usage;
  if (cache->dir.folder < 0 || !atomic_load(&cache->writable) || !has_news(cache->counters)) return;
  if (cache_usage_open(&usage, cache) < 0) return;
  (void)cache_usage_write(&usage);
  cache_usage_close(&usage);
}
