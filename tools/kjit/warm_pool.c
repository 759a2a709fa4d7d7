/* Compiles a list of requests side by side (warm_pool.h says how).
 *
 * 1. `jobs` threads each take the next request from a shared counter, have the runtime build it, and store the result.
 *    The runtime compiles in the processes of its compile server, so a thread only waits.
 * 2. The calling thread shows progress and looks for an interrupt, which cancels the runtime: what is being compiled
 *    then ends at once, and the threads take nothing more.
 * 3. The threads are joined and the runtime is destroyed, which ends the processes.
 *
 * `mutex` guards `done`; each result belongs to the thread that took its request until the threads are joined. */
#include "warm_pool.h"

#include "command.h"
#include "interrupt.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How often progress is shown and an interrupt looked for. */
#define LOOK_NS 50000000

struct pool {
  const struct request_list *list;
  kjit_runtime *runtime;
  uint32_t flags; /* of each request */
  struct warm_result *results;
  _Atomic size_t next; /* first request that no thread has taken */
  atomic_bool over;    /* nothing more is to be taken */
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  size_t done, running; /* requests with a result; threads that have not ended */
};

static void result_store(struct warm_result *result, kjit_status status, uint32_t origin, const char *message) {
  result->origin = origin;
  snprintf(result->message, sizeof result->message, "%s", message);
  result->status = (int32_t)status;
}

static void request_build(const struct pool *pool, const struct kernel_request *request, struct warm_result *result) {
  kjit_artifact *artifact = NULL;
  kjit_artifact_info info = {.struct_size = sizeof info};
  kjit_error error = {0};
  kjit_status status = request_artifact(pool->runtime, request, pool->flags, &artifact, &error);
  if (status == KJIT_OK) status = kjit_artifact_get_info(artifact, &info, &error);
  result_store(result, status, info.origin, error.message);
  kjit_artifact_release(artifact);
}

static void count(struct pool *pool, size_t done, size_t ended) {
  pthread_mutex_lock(&pool->mutex);
  pool->done += done;
  pool->running -= ended;
  pthread_cond_signal(&pool->changed);
  pthread_mutex_unlock(&pool->mutex);
}

static void *work(void *user) {
  struct pool *pool = user;
  while (!atomic_load(&pool->over)) {
    const size_t task = atomic_fetch_add(&pool->next, 1);
    if (task >= pool->list->count) break;
    request_build(pool, &pool->list->items[task], &pool->results[task]);
    count(pool, 1, 0);
  }
  count(pool, 0, 1);
  return NULL;
}

/* ---- In the calling thread ---- */

/* Start up to `jobs` threads. Returns how many there are. */
static size_t threads_start(struct pool *pool, pthread_t *threads, size_t jobs) {
  size_t started = 0;
  interrupt_hold(); /* the threads inherit the mask, so that signals come to the calling thread */
  pool->running = jobs;
  while (started < jobs && pthread_create(&threads[started], NULL, work, pool) == 0)
    started++;
  interrupt_let();
  count(pool, 0, jobs - started);
  return started;
}

/* Wait until the threads have ended, and show how far they are. The condition is timed by the wall clock, which may
 * jump: then progress is shown earlier or later. */
static void threads_watch(struct pool *pool, warm_progress progress, void *user) {
  struct timespec look;
  pthread_mutex_lock(&pool->mutex);
  while (pool->running > 0) {
    const size_t done = pool->done;
    pthread_mutex_unlock(&pool->mutex);
    progress(user, done, pool->list->count);
    if (interrupt_signal() != 0 && !atomic_exchange(&pool->over, true)) kjit_runtime_cancel(pool->runtime);
    clock_gettime(CLOCK_REALTIME, &look);
    look.tv_nsec += LOOK_NS;
    look.tv_sec += look.tv_nsec / 1000000000;
    look.tv_nsec %= 1000000000;
    pthread_mutex_lock(&pool->mutex);
    if (pool->running > 0) (void)pthread_cond_timedwait(&pool->changed, &pool->mutex, &look);
  }
  pthread_mutex_unlock(&pool->mutex);
  progress(user, pool->done, pool->list->count);
}

static kjit_status pool_run(struct pool *pool, size_t jobs, warm_progress progress, void *user, kjit_error *error) {
  pthread_t *threads = calloc(jobs + 1, sizeof *threads);
  if (threads == NULL) return error_say(error, KJIT_ERR_NO_MEMORY, "out of memory for %zu threads", jobs);
  kjit_status status = KJIT_OK;
  const size_t started = threads_start(pool, threads, jobs);
  if (started == 0 && jobs > 0) status = error_say(error, KJIT_ERR_IO, "no thread could be started");
  threads_watch(pool, progress, user);
  for (size_t i = 0; i < started; i++)
    (void)pthread_join(threads[i], NULL);
  free(threads);
  return status;
}

/* A compile that was cut off says that the runtime was cancelled; the user knows it as the interrupt. */
static void results_finish(struct warm_result *results, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (results[i].status == KJIT_ERR_CANCELLED)
      result_store(&results[i], KJIT_ERR_CANCELLED, 0, "not built: interrupted");
}

static kjit_status count_unkept(kjit_runtime *runtime, struct warm_counts *counts, kjit_error *error) {
  kjit_runtime_stats stats = {.struct_size = sizeof stats};
  const kjit_status status = kjit_runtime_get_stats(runtime, &stats, error);
  const char *const path = kjit_cache_path(runtime);
  snprintf(counts->cache_path, sizeof counts->cache_path, "%s", path != NULL ? path : "");
  counts->not_kept = stats.not_kept;
  return status;
}

kjit_status warm_pool_run(const struct request_list *list, size_t jobs, uint32_t flags, warm_progress progress,
                          void *user, struct warm_result **results, struct warm_counts *counts, kjit_error *error) {
  struct pool pool = {
      .list = list, .flags = flags, .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
  *results = calloc(list->count + 1, sizeof **results);
  if (*results == NULL) return error_say(error, KJIT_ERR_NO_MEMORY, "out of memory for %zu results", list->count);
  pool.results = *results;
  for (size_t i = 0; i < list->count; i++)
    (*results)[i].status = KJIT_ERR_CANCELLED;
  kjit_status status = open_runtime_serving(&pool.runtime, error);
  if (status == KJIT_OK) status = pool_run(&pool, jobs < list->count ? jobs : list->count, progress, user, error);
  if (status == KJIT_OK && counts != NULL) status = count_unkept(pool.runtime, counts, error);
  kjit_runtime_destroy(pool.runtime);
  results_finish(*results, list->count);
  if (status == KJIT_OK) return KJIT_OK;
  warm_results_free(*results);
  *results = NULL;
  return status;
}

void warm_results_free(struct warm_result *results) {
  free(results);
}
