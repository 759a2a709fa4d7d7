/* What a builder and its cache folders count. One list: the public statistics, the persistent ones and the memory
 * behind both are made from it. */
#ifndef KJIT_JIT_CACHE_CACHE_COUNTERS_H
#define KJIT_JIT_CACHE_CACHE_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

/* Names as in kjit_runtime_stats. Append only: their order is that of the file "usage". */
#define CACHE_COUNTER_MAP(X)                                                                                           \
  X(memory_hits)                                                                                                       \
  X(user_hits)                                                                                                         \
  X(site_hits)                                                                                                         \
  X(bundle_hits)                                                                                                       \
  X(misses)                                                                                                            \
  X(builds)                                                                                                            \
  X(build_failures)                                                                                                    \
  X(build_ns)                                                                                                          \
  X(waits)                                                                                                             \
  X(wait_ns)                                                                                                           \
  X(rebuilt_entries)                                                                                                   \
  X(evictions)                                                                                                         \
  X(published)                                                                                                         \
  X(bytes_read)                                                                                                        \
  X(bytes_written)                                                                                                     \
  X(cache_errors)                                                                                                      \
  X(remote_hits)                                                                                                       \
  X(remote_misses)                                                                                                     \
  X(remote_refused)                                                                                                    \
  X(remote_errors)                                                                                                     \
  X(remote_puts)                                                                                                       \
  X(remote_dropped)                                                                                                    \
  X(remote_leases)                                                                                                     \
  X(remote_waits)                                                                                                      \
  X(not_kept)

enum cache_counter {
#define CACHE_COUNTER_ENUM(name) COUNT_##name,
  CACHE_COUNTER_MAP(CACHE_COUNTER_ENUM)
#undef CACHE_COUNTER_ENUM
      CACHE_COUNTERS
};

struct cache_counters {
  _Atomic uint64_t value[CACHE_COUNTERS];
  _Atomic uint64_t flushed[CACHE_COUNTERS]; /* what of it the user folder's statistics have */
};

static inline void count_add(struct cache_counters *counters, enum cache_counter which, uint64_t by) {
  atomic_fetch_add_explicit(&counters->value[which], by, memory_order_relaxed);
}

static inline uint64_t count_get(const struct cache_counters *counters, enum cache_counter which) {
  return atomic_load_explicit(&counters->value[which], memory_order_relaxed);
}

#endif
