/* The bundles of one builder. They are asked before the cache folders. */
#ifndef KJIT_JIT_BUNDLE_BUNDLE_SET_H
#define KJIT_JIT_BUNDLE_BUNDLE_SET_H

#include <kjit/runtime.h>

#include "jit/bundle/bundle.h"

/* Each look-up searches every bundle, so a larger number is taken for a mistake. */
#define BUNDLE_SET_MAX 4096

struct bundle_set {
  const struct mem *mem;
  const struct log *log;
  struct cache_counters *counters;
  struct bundle **bundles; /* in the order in which they are asked */
  size_t count;
  struct trust trust;
};

/* Open what the options name: any that fails fails all. Without any there, open `environment` (paths separated by ":",
 * may be NULL): what fails there is counted, logged and left out. The set holds mem, log and counters already; close it
 * in either case. */
kjit_status bundle_set_open(struct bundle_set *set, const kjit_runtime_options *options, const char *environment,
                            kjit_error *error);
void bundle_set_close(struct bundle_set *set); /* accepts a zeroed one */

/* The first sound answer to the request, whatever compiled it. KJIT_ERR_NOT_FOUND for a miss: a kernel that is there
 * but damaged is counted and logged, and `error` says so; KJIT_ERR_NO_MEMORY. Thread-safe. */
kjit_status bundle_set_get(const struct bundle_set *set, const struct key *key, struct entry_image *image,
                           kjit_error *error);

#endif
