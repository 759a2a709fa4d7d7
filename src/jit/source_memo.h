/* What requests were found to include, so that asking again costs a stat of each file and not the search. In memory,
 * and as files in the cache folder for other processes.
 *
 * A record is believed while every file that was read and every folder where a name was missing has the stamp it had:
 * device, inode, size, times of modification and of change. A stamp that was taken within SOURCE_MEMO_RACY_NS of its
 * last change may hide a second change in the same tick of the clock: then a file is compared by content, and a folder
 * makes the record void. */
#ifndef KJIT_JIT_SOURCE_MEMO_H
#define KJIT_JIT_SOURCE_MEMO_H

#include <stdbool.h>

#include "jit/cache/disk_cache.h"
#include "jit/request/custom_request.h"

/* The coarsest clock of a file system in use (FAT), and more than a file server's clock is usually off. */
#define SOURCE_MEMO_RACY_NS 2000000000

struct source_memo; /* the table */

/* One record, immutable. */
struct source_record {
  struct source_set set; /* withheld: names and digests without texts */
  bool everything;       /* collected with `everything` */
};

/* `disk` is where records are kept for others, and may have no folder. NULL when out of memory. */
struct source_memo *source_memo_create(const struct mem *mem, struct disk_cache *disk);
void source_memo_destroy(struct source_memo *memo); /* accepts NULL */

/* The record of a fingerprint, retained; NULL when there is none. `memory_only`: no file is touched. Thread-safe. */
const struct source_record *source_memo_find(struct source_memo *memo, const struct digest *fingerprint,
                                             bool memory_only);
void source_record_release(const struct source_record *record); /* accepts NULL */

/* Would a search give the same again? Thread-safe. */
bool source_record_is_fresh(const struct source_record *record);

/* Keep what was collected. `started_ns`: source_memo_now_ns() before it. What cannot be kept is not kept. Thread-safe.
 */
void source_memo_put(struct source_memo *memo, const struct digest *fingerprint, const struct custom_request *custom,
                     bool everything, int64_t started_ns);
int64_t source_memo_now_ns(void); /* the clock that files are stamped by */

/* Around fork(): the child starts with an unlocked table. */
void source_memo_fork_prepare(struct source_memo *memo);
void source_memo_fork_done(struct source_memo *memo);

#endif
