/* The builder's own data: what its files share, and what its tests set. */
#ifndef KJIT_JIT_BUILDER_INTERNAL_H
#define KJIT_JIT_BUILDER_INTERNAL_H

#include <pthread.h>

#include <kjit/runtime.h>

#include "base/threads/fork_guard.h"
#include "jit/artifact.h"
#include "jit/bundle/bundle_set.h"
#include "jit/cache/cache_lock.h"
#include "jit/cache/disk_cache.h"
#include "jit/compile/compile.h"
#include "jit/key/key.h"
#include "jit/record/record.h"
#include "jit/remote/remote.h"
#include "jit/resident.h"
#include "jit/server/server.h"
#include "jit/source_memo.h"
#include "jit/toolkit/toolkit_find.h"

/* How long a process waits for another process's build before it builds by itself. It is long, because a holder that is
 * merely slow is far more common than one that is stopped; the lock of a holder that died is free at once. */
#define BUILDER_WAIT_BOUND_NS (60 * (int64_t)1000000000)

/* How long a failed compile answers for its key. Long enough for a program that retries in a loop or restarts, short
 * enough that a fixed environment (a full disk, a header that is now there) is noticed. */
#define BUILDER_FAILURE_S 600

/* A use is recorded at most once a second and entry: a thousand processes that start together write it once. */
#define BUILDER_USE_GRAIN_S 1

/* How long a compile goes on when its caller's deadline has passed. Longer than any kernel that was met takes, so that
 * a program with short deadlines gets each kernel in the end; bounded, because a compiler may hang. */
#define BUILDER_DEFAULT_BACKGROUND_MAX_MS 300000

#define BUILDER_DEFAULT_MAX_BYTES   ((uint64_t)1 << 30)
#define BUILDER_DEFAULT_MAX_ENTRIES 100000
#define BUILDER_DEFAULT_TEXT_BYTES  ((uint64_t)64 << 20)

/* Bounds on the artifacts in memory that no loaded kernel holds: thousands of kernels of usual size. An evicted one
 * costs a read of its entry when it is asked for again. */
#define BUILDER_DEFAULT_MEMORY_MAX_BYTES   ((uint64_t)256 << 20)
#define BUILDER_DEFAULT_MEMORY_MAX_ENTRIES 16384

/* Compiles that go on after their callers have left (builder_background.c). */
struct background {
  pthread_mutex_t mutex;
  struct background_build *builds; /* running, or ended and not yet joined */
  size_t count;
};

struct builder {
  const struct mem *mem;
  const struct log *log;
  const struct file_ops *ops;
  struct nvrtc *nvrtc;
  struct compile_server *server; /* NULL: kernels are compiled in this process */
  struct background background;
  int64_t background_max_ns; /* how long a compile goes on after its caller's deadline */
  atomic_bool ending;        /* whatever is under way is to end: builder_cancel(), or the builder is being destroyed */
  atomic_int compiling;      /* threads that are inside the compiler, in this process; see builder_wait_compiles() */
  struct cache_counters counters;
  struct resident *resident;
  struct bundle_set bundles;
  struct source_shelf sources;
  struct disk_cache user, site;
  struct remote *remote; /* NULL: no store is named */
  struct record *record;
  struct source_memo *memo; /* what callers' sources include */
  struct toolkit toolkit;
  char *dump_dir; /* where compiles are dumped (inspect.h); NULL: nowhere */
  kjit_cache_mode mode;
  int64_t wait_bound_ns, failure_s;
  kjit_error cache_error; /* why there is no user folder; status 0 when there is one, or none is wanted */
  atomic_bool identified[COMPILE_TOOLS_COUNT]; /* the tools' identity is known: asking again touches no file */
  _Atomic int64_t missing_until_ns[COMPILE_TOOLS_COUNT];
  struct fork_guard guard;
  pthread_mutex_t held_mutex;
  struct cache_lock *held; /* locks that a forked child must not keep alive */
};

/* What tests replace; zero means the default. */
struct builder_parts {
  struct nvrtc *nvrtc; /* taken over, also on failure */
  const struct file_ops *ops;
  int64_t wait_bound_ns;
  int64_t failure_s;
  int64_t use_grain_s; /* -1: record every use */
};

kjit_status builder_create_parts(struct builder **out, const kjit_runtime_options *options, const struct mem *mem,
                                 const struct log *log, const struct builder_parts *parts, kjit_error *error);

static inline int64_t builder_now_ns(const struct builder *builder) {
  return builder->ops->monotonic_ns(builder->ops->user);
}

#endif
