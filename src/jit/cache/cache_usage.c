/* Reading, writing and locking the file "usage".
 *
 * Every publish of every process passes here, so the lock is held for as short as possible: open, make room, write,
 * rename, close. Waiting has two time limits, because a holder that is stopped and a disk that is slow for everybody
 * look alike at first; whether the block changes tells them apart. Statistics ride along with the publishes; what is
 * left is written when the runtime is destroyed.
 *
 * Threads: a struct cache_usage belongs to one thread. Threads of one process exclude each other as processes do, since
 * each opens the file for itself. */
#include "jit/cache/cache_usage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>

#include "base/hash.h"

#define USAGE_FILE  "usage"
#define USAGE_MAGIC 0x32455347554a4bu /* "KJUGSE2": changes with the block's layout */

/* How long to wait for the lock on "usage". A healthy holder needs milliseconds and rewrites the block. If the block
 * has not changed for 5 s, the holder is stopped or recounts a huge folder: give up, and do not cache this entry,
 * because an entry beyond the bound would be worse than a missing one. While the block changes, others are being served
 * (a slow disk): wait up to 30 s. */
#define STILL_PATIENCE_NS  ((int64_t)5 * 1000000000)
#define MOVING_PATIENCE_NS ((int64_t)30 * 1000000000)

/* The lock is polled, because file locks cannot be waited for with a time limit. The pause doubles from 20 us to 2 ms.
 */
#define POLL_FIRST_NS 20000
#define POLL_LAST_NS  2000000

static uint64_t checksum(const struct usage_block *block) {
  return hash_64(block, offsetof(struct usage_block, checksum));
}

static bool read_block(const struct disk_cache *cache, int file, struct usage_block *block) {
  return file_read_all(cache->ops, file, block, sizeof *block, 0) == 0 && block->magic == USAGE_MAGIC &&
         block->checksum == checksum(block);
}

/* The checksum that the file holds: it differs after each write of the block, so it tells whether the holder of the
 * lock makes progress. Never 0, because 0 in cache->usage_stuck_at means that nobody gave up. */
static uint64_t read_progress(const struct disk_cache *cache, int file) {
  uint64_t stored = 0;
  const off_t at = (off_t)offsetof(struct usage_block, checksum);
  const int done = file_read_all(cache->ops, file, &stored, sizeof stored, at);
  return done == 0 && stored ? stored : 1;
}

/* After one timed-out wait, later publishes of this process fail at once with -EBUSY until the block's checksum has
 * changed, that is, until another process has made progress. Otherwise each would stall for 5 s behind a stopped
 * process.
 */
static int lock_patiently(struct disk_cache *cache, int file) {
  const struct file_ops *ops = cache->ops;
  const uint64_t stuck = atomic_load(&cache->usage_stuck_at);
  const int64_t start_ns = ops->monotonic_ns(ops->user);
  int64_t moved_ns = start_ns;
  uint64_t last = 0;
  for (int64_t pause_ns = POLL_FIRST_NS;; pause_ns = pause_ns < POLL_LAST_NS ? pause_ns * 2 : pause_ns) {
    const int locked = ops->lock(ops->user, file, 0, 1);
    /* Any other error means that the file system has no locks. Two writers may then overwrite each other's block, which
     * the next recount corrects. */
    if (locked != -EAGAIN) return 0;
    const uint64_t progress = read_progress(cache, file);
    const int64_t now_ns = ops->monotonic_ns(ops->user);
    if (progress == stuck) return -EBUSY;
    if (progress != last) moved_ns = now_ns;
    last = progress;
    if (now_ns - moved_ns > STILL_PATIENCE_NS || now_ns - start_ns > MOVING_PATIENCE_NS) {
      atomic_store(&cache->usage_stuck_at, progress);
      return -EBUSY;
    }
    ops->sleep_ns(ops->user, pause_ns);
  }
}

/* Add what this process has counted since the last time. The subtraction may wrap: if two threads are here at once,
 * their differences still add up to the right sum. */
static void add_statistics(struct cache_usage *usage) {
  struct cache_counters *counters = usage->cache->counters;
  for (int i = 0; i < CACHE_COUNTERS; i++) {
    const uint64_t now = count_get(counters, (enum cache_counter)i);
    usage->block.counts[i] += now - atomic_exchange(&counters->flushed[i], now);
  }
}

void cache_usage_be_patient(struct disk_cache *cache) {
  atomic_store(&cache->usage_stuck_at, 0);
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
    done = cache_evict_recount(cache, &usage->block.totals);
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

int cache_usage_make_room(struct cache_usage *usage, uint64_t bytes) {
  const struct disk_cache *cache = usage->cache;
  const struct evict_goal goal = {cache->max_bytes - bytes, cache->max_entries - 1, EVICT_SAMPLE};
  return bytes > cache->max_bytes ? -EFBIG : cache_evict(usage->cache, &usage->block.totals, &goal, NULL);
}

static bool has_news(const struct cache_counters *counters) {
  for (int i = 0; i < CACHE_COUNTERS; i++)
    if (count_get(counters, (enum cache_counter)i) != atomic_load(&counters->flushed[i])) return true;
  return false;
}

void cache_usage_flush(struct disk_cache *cache) {
  struct cache_usage usage;
  if (cache->dir.folder < 0 || !atomic_load(&cache->writable) || !has_news(cache->counters)) return;
  if (cache_usage_open(&usage, cache) < 0) return;
  (void)cache_usage_write(&usage);
  cache_usage_close(&usage);
}
