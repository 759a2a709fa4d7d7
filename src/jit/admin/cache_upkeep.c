/* `kjit cache verify`, `prune`, `clear` and `stats`.
 *
 * Verify reads and checks every entry and may remove the damaged ones. Prune and clear are one operation with other
 * bounds: lock the file "usage", count the folder, evict to exactly the goal, unlock, then sweep abandoned temporary
 * files and old failures; clear also removes the texts of sources. Stats are read from "usage" without its lock, after
 * this process's own counters were written.
 *
 * Other processes may publish and evict meanwhile: an entry that disappears during a walk is no error. The functions
 * run on the calling thread, and the only lock is that of "usage", held while something is removed. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "base/struct_intake.h"
#include "jit/admin/admin_common.h"
#include "jit/admin/cache_admin.h"
#include "jit/cache/cache_usage.h"
#include "jit/cache/cache_walk.h"
#include "jit/cache/failure_cache.h"
#include "jit/cache/temp_file.h"
#include "jit/cache/text_store.h"

/* A verification under way. */
struct check {
  struct builder *builder;
  bool repair;
  kjit_cache_report report;
};

static int check_entry(void *user, int folder, const struct entry_name *name) {
  struct check *check = user;
  struct disk_cache *cache = &check->builder->user;
  struct entry_image image;
  struct stat status;
  const char *damage = NULL;
  (void)folder;
  const int done = disk_cache_read(cache, name, &image, &status, &damage);
  if (done == -ENOMEM) return done;
  if (done == -ENOENT || done == -ESTALE) return 0;
  check->report.entries++;
  check->report.bytes += (uint64_t)status.st_size;
  if (done == 0) entry_image_finish(&image, cache->mem);
  if (done == 0) return 0;
  check->report.damaged++;
  /* Only an entry that was read and found damaged is removed. One that could not be read (a file server that is away)
   * may be sound. */
  if (!check->repair || done != -EBADMSG) return 0;
  check->report.removed++;
  check->report.removed_bytes += (uint64_t)status.st_size;
  disk_cache_set_aside(cache, name, status.st_ino, damage);
  return 0;
}

/* Count the temporary files that no process is writing any more; with `remove` also remove them. */
static int sweep(struct builder *builder, bool remove, kjit_cache_report *report) {
  struct temp_sweep temps = {.remove = remove};
  const int done = temp_file_sweep(&temps, builder->ops, builder->user.dir.folder);
  report->temporary_files = temps.found;
  return done;
}

kjit_status builder_cache_verify(struct builder *builder, uint32_t flags, kjit_cache_report *report,
                                 kjit_error *error) {
  struct check check = {.builder = builder, .repair = (flags & KJIT_CACHE_REPAIR) != 0};
  error_clear(error);
  kjit_status status = admin_check_report(report, error);
  if (status == KJIT_OK && (flags & ~KJIT_CACHE_REPAIR))
    status = error_invalid(error, "flags", "only KJIT_CACHE_REPAIR may be set");
  if (status == KJIT_OK && check.repair) status = admin_need_writable(builder, error);
  if (status != KJIT_OK || builder->user.dir.folder < 0) return status;
  int done = cache_walk(&builder->user, check_entry, &check);
  if (done >= 0) done = sweep(builder, 0, &check.report);
  status = admin_failed(builder, "verify", done, error);
  return status == KJIT_OK ? admin_fill_report(report, &check.report, error) : status;
}

/* Count the folder and evict to exactly the goal, while `usage` is locked. */
static int shrink(struct cache_usage *usage, uint64_t max_bytes, uint64_t max_entries, kjit_cache_report *report) {
  const struct evict_goal goal = {max_bytes, max_entries, EVICT_EXACT};
  struct cache_amount removed = {0, 0};
  int done = cache_evict_recount(usage->cache, &usage->block.totals);
  const struct cache_amount before = cache_totals_sum(&usage->block.totals);
  if (done == 0) done = cache_evict(usage->cache, &usage->block.totals, &goal, &removed);
  report->entries = before.entries;
  report->bytes = before.bytes;
  report->removed = removed.entries;
  report->removed_bytes = removed.bytes;
  const int written = cache_usage_write(usage);
  return done < 0 ? done : written;
}

static kjit_status shrink_folder(struct builder *builder, const char *what, uint64_t max_bytes, uint64_t max_entries,
                                 kjit_cache_report *report, kjit_error *error) {
  struct cache_usage usage;
  kjit_cache_report found = {0};
  error_clear(error);
  kjit_status status = admin_check_report(report, error);
  if (status == KJIT_OK && builder->user.dir.folder < 0) return admin_fill_report(report, &found, error);
  if (status == KJIT_OK) status = admin_need_writable(builder, error);
  if (status != KJIT_OK) return status;
  cache_usage_be_patient(&builder->user);
  int done = cache_usage_open(&usage, &builder->user);
  if (done == 0) {
    done = shrink(&usage, max_bytes, max_entries, &found);
    cache_usage_close(&usage);
  }
  if (done == 0) done = sweep(builder, 1, &found);
  if (done == 0) done = failure_cache_sweep(&builder->user, max_entries ? builder->failure_s : 0);
  if (done == 0 && !max_entries) done = text_store_clear(&builder->user);
  status = admin_failed(builder, what, done, error);
  return status == KJIT_OK ? admin_fill_report(report, &found, error) : status;
}

kjit_status builder_cache_prune(struct builder *builder, uint64_t max_bytes, kjit_cache_report *report,
                                kjit_error *error) {
  return shrink_folder(builder, "prune", max_bytes, UINT64_MAX, report, error);
}

kjit_status builder_cache_clear(struct builder *builder, kjit_cache_report *report, kjit_error *error) {
  return shrink_folder(builder, "clear", 0, 0, report, error);
}

kjit_status builder_cache_get_stats(struct builder *builder, kjit_cache_stats *stats, kjit_error *error) {
  struct usage_block block;
  kjit_cache_stats found = {0};
  error_clear(error);
  cache_usage_flush(&builder->user);
  cache_usage_peek(&builder->user, &block);
  const struct cache_amount total = cache_totals_sum(&block.totals);
  const uint64_t *counts = block.counts;
  found.entries = total.entries;
  found.bytes = total.bytes;
  found.max_entries = builder->user.max_entries;
  found.max_bytes = builder->user.max_bytes;
  found.hits = counts[COUNT_user_hits];
  found.misses = counts[COUNT_misses];
  found.builds = counts[COUNT_builds];
  found.build_failures = counts[COUNT_build_failures];
  found.build_ns = counts[COUNT_build_ns];
  found.waits = counts[COUNT_waits];
  found.wait_ns = counts[COUNT_wait_ns];
  found.rebuilt_entries = counts[COUNT_rebuilt_entries];
  found.evictions = counts[COUNT_evictions];
  found.published = counts[COUNT_published];
  found.bytes_read = counts[COUNT_bytes_read];
  found.bytes_written = counts[COUNT_bytes_written];
  found.cache_errors = counts[COUNT_cache_errors];
  return struct_fill(stats, &found, sizeof found, "stats", error);
}
