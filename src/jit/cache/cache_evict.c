/* Eviction: the oldest entries of a sample go until the folder is within its bounds.
 *
 * Steps: look at whole shards from the cursor on until EVICT_SAMPLE entries were seen, set those shards' totals to what
 * they hold, sort what was seen by modification time, remove the oldest. That is repeated until the goal is met; after
 * ROUNDS samples without success the whole folder is scanned.
 *
 * The caller holds the lock on the file "usage", so no other thread or process publishes or evicts meanwhile. Readers
 * are not held up: an entry that is removed while it is read stays readable for that reader. */
#include "jit/cache/cache_evict.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "jit/cache/cache_walk.h"

/* Evict 1/32 of the bound more than needed, so that the next publishers find room. */
#define SLACK_PART 32

/* Of a sample that is not the whole folder at most the oldest 1/8 goes, because the rest of the sample may be younger
 * than entries that were not sampled. */
#define SAMPLE_PART 8

/* After this many samples the whole folder is scanned, so that an eviction always ends. */
#define ROUNDS 16

/* An entry that may have to go. */
struct candidate {
  int64_t used_ns;
  uint64_t bytes;
  char file[sizeof((struct entry_name *)0)->file];
};

/* One eviction, or one count of the folder. */
struct scan {
  struct disk_cache *cache;
  bool present[ENTRY_SHARDS];
  struct cache_amount seen; /* what the current shard holds, as far as it was looked at */
  bool keep;                /* collect candidates: an eviction, not a count */
  struct candidate *candidates;
  size_t count, capacity;
};

/* Visit one entry: add it to the shard's amount and, in an eviction, to the candidates. */
static int see(void *user, int folder, const struct entry_name *name) {
  struct scan *scan = user;
  const struct file_ops *ops = scan->cache->ops;
  struct stat status;
  /* An entry that cannot be looked at was removed by another process since its shard was listed. */
  if (ops->stat_at(ops->user, folder, name->file, &status) < 0) return 0;
  scan->seen.bytes += (uint64_t)status.st_size;
  scan->seen.entries++;
  if (!scan->keep) return 0;
  struct candidate *const candidates =
      mem_grow(scan->cache->mem, scan->candidates, scan->count, &scan->capacity, sizeof *candidates);
  if (!candidates) return -ENOMEM;
  scan->candidates = candidates;
  struct candidate *const candidate = &candidates[scan->count++];
  candidate->used_ns = (int64_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec;
  candidate->bytes = (uint64_t)status.st_size;
  memcpy(candidate->file, name->file, sizeof candidate->file);
  return 0;
}

static int scan_shard(struct scan *scan, struct cache_totals *totals, unsigned shard) {
  scan->seen = (struct cache_amount){0, 0};
  const int done = scan->present[shard] ? cache_walk_shard(scan->cache, shard, see, scan) : 0;
  if (done == 0) totals->shards[shard] = scan->seen;
  return done;
}

int cache_evict_recount(struct disk_cache *cache, struct cache_totals *totals) {
  struct scan scan = {.cache = cache};
  int done = cache_walk_present(cache, scan.present);
  for (unsigned shard = 0; shard < ENTRY_SHARDS && done == 0; shard++)
    done = scan_shard(&scan, totals, shard);
  return done;
}

static int older_first(const void *a, const void *b) {
  const struct candidate *left = a, *right = b;
  return (left->used_ns > right->used_ns) - (left->used_ns < right->used_ns);
}

struct cache_amount cache_totals_sum(const struct cache_totals *totals) {
  struct cache_amount sum = {0, 0};
  for (int i = 0; i < ENTRY_SHARDS; i++) {
    sum.bytes += totals->shards[i].bytes;
    sum.entries += totals->shards[i].entries;
  }
  return sum;
}

static bool within(const struct cache_totals *totals, uint64_t max_bytes, uint64_t max_entries) {
  const struct cache_amount sum = cache_totals_sum(totals);
  return sum.bytes <= max_bytes && sum.entries <= max_entries;
}

static int remove_candidate(struct disk_cache *cache, struct cache_totals *totals, const struct candidate *candidate,
                            struct cache_amount *removed) {
  const struct file_ops *ops = cache->ops;
  struct entry_name name;
  if (!entry_name_parse(&name, candidate->file)) return -EINVAL;
  const int folder = ops->open(ops->user, cache->dir.folder, name.folder, O_RDONLY | O_DIRECTORY, 0);
  const int done = folder < 0 ? folder : ops->unlink(ops->user, folder, name.file);
  if (folder >= 0) (void)ops->close(ops->user, folder);
  if (done < 0 && done != -ENOENT) return done;
  struct cache_amount *shard = &totals->shards[entry_name_shard_number(&name)];
  shard->bytes -= candidate->bytes < shard->bytes ? candidate->bytes : shard->bytes;
  shard->entries -= shard->entries != 0;
  removed->bytes += candidate->bytes;
  removed->entries++;
  return 0;
}

/* Remove the oldest candidates until the goal is met with some slack, but no more than `limit` of them. An exact goal
 * has no slack, because a user named it. */
static int remove_oldest(struct scan *scan, struct cache_totals *totals, const struct evict_goal *goal, size_t limit,
                         struct cache_amount *removed) {
  const uint64_t slack = goal->sample == EVICT_EXACT ? 0 : 1;
  const uint64_t low_bytes = goal->max_bytes - slack * (goal->max_bytes / SLACK_PART);
  const uint64_t low_entries = goal->max_entries - slack * (goal->max_entries / SLACK_PART);
  int done = 0;
  if (scan->count) qsort(scan->candidates, scan->count, sizeof *scan->candidates, older_first);
  for (size_t i = 0; i < scan->count && i < limit && done == 0; i++) {
    if (within(totals, low_bytes, low_entries)) break;
    done = remove_candidate(scan->cache, totals, &scan->candidates[i], removed);
  }
  return done;
}

/* Look at shards from the cursor on until the sample is large enough, then remove its oldest entries. */
static int evict_once(struct scan *scan, struct cache_totals *totals, const struct evict_goal *goal, size_t sample,
                      struct cache_amount *removed) {
  unsigned looked = 0;
  int done = 0;
  scan->count = 0;
  while (done == 0 && scan->count < sample && looked++ < ENTRY_SHARDS)
    done = scan_shard(scan, totals, (unsigned)(totals->cursor++ % ENTRY_SHARDS));
  const size_t limit = looked >= ENTRY_SHARDS ? scan->count : scan->count / SAMPLE_PART;
  return done == 0 ? remove_oldest(scan, totals, goal, limit, removed) : done;
}

/* 9/8 of the goal, or the largest number if that overflows. */
static uint64_t and_some(uint64_t goal) {
  const uint64_t part = goal / SAMPLE_PART;
  return goal > UINT64_MAX - part ? UINT64_MAX : goal + part;
}

/* True when the folder is more than 1/8 over the goal, as after the bound was lowered. Samples would then have to give
 * up recently used entries, so the whole folder is scanned instead. */
static bool far_beyond(const struct cache_totals *totals, const struct evict_goal *goal) {
  return !within(totals, and_some(goal->max_bytes), and_some(goal->max_entries));
}

int cache_evict(struct disk_cache *cache, struct cache_totals *totals, const struct evict_goal *goal,
                struct cache_amount *removed) {
  struct scan scan = {.cache = cache, .keep = 1};
  struct cache_amount gone = {0, 0};
  if (removed) *removed = gone;
  if (within(totals, goal->max_bytes, goal->max_entries)) return 0;
  int done = cache_walk_present(cache, scan.present);
  size_t sample = far_beyond(totals, goal) ? EVICT_EXACT : goal->sample;
  /* A round that removes nothing has corrected the totals of the shards that it saw, so the loop makes progress. */
  for (int round = 0; done == 0 && round <= ROUNDS && !within(totals, goal->max_bytes, goal->max_entries); round++) {
    if (round == ROUNDS) sample = EVICT_EXACT;
    done = evict_once(&scan, totals, goal, sample, &gone);
  }
  mem_free(cache->mem, scan.candidates);
  count_add(cache->counters, COUNT_evictions, gone.entries);
  if (removed) *removed = gone;
  return done;
}
