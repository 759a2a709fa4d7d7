/* Appending requests to a manifest, each once, beside other processes that do the same. */
#ifndef KJIT_JIT_RECORD_RECORD_H
#define KJIT_JIT_RECORD_RECORD_H

#include <stdbool.h>

#include "base/log.h"
#include "base/mem.h"
#include "jit/cache/cache_counters.h"
#include "jit/cache/file_ops.h"
#include "jit/request/request.h"

struct record;

/* NULL when out of memory. What is given must outlive it. */
struct record *record_create(const struct mem *mem, const struct log *log, const struct file_ops *ops,
                             struct cache_counters *counters);
void record_destroy(struct record *record); /* accepts NULL */

/* Record to this file from now on; NULL: to none. KJIT_ERR_INVALID_ARG, KJIT_ERR_NO_MEMORY. Thread-safe. */
kjit_status record_to(struct record *record, const char *path, kjit_error *error);

/* Is a file set? One load. Thread-safe. */
bool record_is_on(const struct record *record);

/* Append the request's line unless this process has done so before or the file has it already. `digest` is the
 * request's identity (key_identify()). Errors are counted and logged, because recording must not fail a request.
 * Thread-safe. */
void record_request(struct record *record, const struct jit_request *request, const struct digest *digest);

/* Around fork(), in parent and child: they hold the mutex, so that no thread is inside while the process is copied. */
void record_fork_prepare(struct record *record);
void record_fork_done(struct record *record);

#endif
