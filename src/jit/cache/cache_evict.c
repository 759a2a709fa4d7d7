#include "jit/cache/cache_evict.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "jit/cache/cache_walk.h"

/* Beyond what must go, so that evictions come in batches: this part of the bound, or this part of a sample. */
#define SLACK_PART  32
#define SAMPLE_PART 8

/* Samples taken before the folder is looked at whole. */
#define ROUNDS 16

struct candidate {
  int64_t used_ns;
  uint64_t bytes;
  char file[sizeof((struct entry_name *)0)->file];
};

struct scan {
  struct disk_cache *cache;
  _Bool present[ENTRY_SHARDS];
  struct usage_shard seen; /* of the shard under way */
  _Bool keep;              /* collect candidates */
  struct candidate *candidates;
  size_t count, capacity;
};

static int grow(struct scan *scan) {
  const struct mem *mem = scan->cache->mem;
  const size_t capacity = scan->capacity ? scan->capacity * 2 : EVICT_SAMPLE;
  struct candidate *more = mem_alloc_array(mem, capacity, sizeof *more);
  if (!more) return -ENOMEM;
  if (scan->count) memcpy(more, scan->candidates, scan->count * sizeof *more);
  mem_free(mem, scan->candidates);
  scan->candidates = more;
  scan->capacity = capacity;
  return 0;
}

static int see(void *user, int folder, const struct entry_name *name) {
  struct scan *scan = user;
  const struct file_ops *ops = scan->cache->ops;
  struct stat status;
  /* Another process may have removed it just now. */
  if (ops->stat_at(ops->user, folder, name->file, &status) < 0) return 0;
  scan->seen.bytes += (uint64_t)status.st_size;
  scan->seen.entries++;
  if (!scan->keep) return 0;
  if (scan->count == scan->capacity && grow(scan) < 0) return -ENOMEM;
  struct candidate *candidate = &scan->candidates[scan->count++];
  candidate->used_ns = (int64_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec;
  candidate->bytes = (uint64_t)status.st_size;
  memcpy(candidate->file, name->file, sizeof candidate->file);
  return 0;
}

static int scan_shard(struct scan *scan, struct usage_block *block, unsigned shard) {
  scan->seen = (struct usage_shard){0, 0};
  const int done = scan->present[shard] ? cache_walk_shard(scan->cache, shard, see, scan) : 0;
  if (done == 0) block->shards[shard] = scan->seen;
  return done;
}

int cache_evict_recount(struct disk_cache *cache, struct usage_block *block) {
  struct scan scan = {.cache = cache};
  int done = cache_walk_present(cache, scan.present);
  for (unsigned shard = 0; shard < ENTRY_SHARDS && done == 0; shard++)
    done = scan_shard(&scan, block, shard);
  return done;
}

static int older_first(const void *a, const void *b) {
  const struct candidate *left = a, *right = b;
  return (left->used_ns > right->used_ns) - (left->used_ns < right->used_ns);
}

static _Bool within(const struct usage_block *block, uint64_t max_bytes, uint64_t max_entries) {
  const struct usage_shard total = cache_usage_total(block);
  return total.bytes <= max_bytes && total.entries <= max_entries;
}

static int remove_candidate(struct disk_cache *cache, struct usage_block *block, const struct candidate *candidate,
                            struct usage_shard *removed) {
  const struct file_ops *ops = cache->ops;
  struct entry_name name;
  if (!entry_name_parse(&name, candidate->file)) return -EINVAL;
  const int folder = ops->open(ops->user, cache->dir.folder, name.folder, O_RDONLY | O_DIRECTORY, 0);
  const int done = folder < 0 ? folder : ops->unlink(ops->user, folder, name.file);
  if (folder >= 0) (void)ops->close(ops->user, folder);
  if (done < 0 && done != -ENOENT) return done;
  struct usage_shard *shard = &block->shards[entry_name_shard_number(&name)];
  shard->bytes -= candidate->bytes < shard->bytes ? candidate->bytes : shard->bytes;
  shard->entries -= shard->entries != 0;
  removed->bytes += candidate->bytes;
  removed->entries++;
  return 0;
}

/* Of the sample, oldest first: until the goal is met with some slack, and no more than `limit`. */
static int remove_oldest(struct scan *scan, struct usage_block *block, const struct evict_goal *goal, size_t limit,
                         struct usage_shard *removed) {
  const uint64_t slack = goal->sample == EVICT_EXACT ? 0 : 1;
  const uint64_t low_bytes = goal->max_bytes - slack * (goal->max_bytes / SLACK_PART);
  const uint64_t low_entries = goal->max_entries - slack * (goal->max_entries / SLACK_PART);
  int done = 0;
  if (scan->count) qsort(scan->candidates, scan->count, sizeof *scan->candidates, older_first);
  for (size_t i = 0; i < scan->count && i < limit && done == 0; i++) {
    if (within(block, low_bytes, low_entries)) break;
    done = remove_candidate(scan->cache, block, &scan->candidates[i], removed);
  }
  return done;
}

/* Look at shards from the cursor on until the sample is large enough, then take its oldest. */
static int evict_once(struct scan *scan, struct usage_block *block, const struct evict_goal *goal, size_t sample,
                      struct usage_shard *removed) {
  unsigned looked = 0;
  int done = 0;
  scan->count = 0;
  while (done == 0 && scan->count < sample && looked++ < ENTRY_SHARDS)
    done = scan_shard(scan, block, (unsigned)(block->cursor++ % ENTRY_SHARDS));
  const size_t limit = looked >= ENTRY_SHARDS ? scan->count : scan->count / SAMPLE_PART;
  return done == 0 ? remove_oldest(scan, block, goal, limit, removed) : done;
}

static uint64_t and_some(uint64_t goal) {
  const uint64_t part = goal / SAMPLE_PART;
  return goal > UINT64_MAX - part ? UINT64_MAX : goal + part;
}

/* So far beyond the goal that old ones of a sample would not do, as after the bound was lowered. */
static _Bool far_beyond(const struct usage_block *block, const struct evict_goal *goal) {
  return !within(block, and_some(goal->max_bytes), and_some(goal->max_entries));
}

int cache_evict(struct disk_cache *cache, struct usage_block *block, const struct evict_goal *goal,
                struct usage_shard *removed) {
  struct scan scan = {.cache = cache, .keep = 1};
  struct usage_shard gone = {0, 0};
  if (removed) *removed = gone;
  if (within(block, goal->max_bytes, goal->max_entries)) return 0;
  int done = cache_walk_present(cache, scan.present);
  size_t sample = far_beyond(block, goal) ? EVICT_EXACT : goal->sample;
  /* Each round removes some or corrects the account; the last one looks at everything. */
  for (int round = 0; done == 0 && round <= ROUNDS && !within(block, goal->max_bytes, goal->max_entries); round++) {
    if (round == ROUNDS) sample = EVICT_EXACT;
    done = evict_once(&scan, block, goal, sample, &gone);
  }
  mem_free(cache->mem, scan.candidates);
  count_add(cache->counters, COUNT_evictions, gone.entries);
  if (removed) *removed = gone;
  return done;
}
