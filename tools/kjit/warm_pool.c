/* Compiles a list of requests with several processes (warm_pool.h says why processes).
 *
 * 1. The parent forks up to `jobs` workers. Each takes the next request from a shared counter, builds it, stores the
 *    result in shared memory and writes one byte to a pipe.
 * 2. The parent waits on the pipe and shows progress. A worker that dies leaves its request behind as failed, with the
 *    signal's number, and is replaced.
 * 3. After an interrupt, or when no worker can be started, the workers are terminated and waited for.
 *
 * `task` tells which request a worker has, so that a crash costs that one. The parent must have one thread, because it
 * forks. */
#include "warm_pool.h"

#include "command.h"
#include "interrupt.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* How often the parent looks for dead workers while none reports. */
#define LOOK_MS 100

struct worker {
  pid_t process;       /* 0: none */
  _Atomic size_t task; /* index of the request being built, TASK_NONE between two */
};
#define TASK_NONE SIZE_MAX

/* What parent and workers share: one anonymous mapping, made before the first fork. */
struct shared {
  _Atomic size_t next; /* first request that no worker has taken */
  struct worker *workers;
  struct warm_result *results;
};

struct pool {
  const struct request_list *list;
  size_t jobs;
  struct shared *shared;
  int done_pipe[2]; /* one byte for each finished request; it ends when no worker is left */
  size_t done;
  size_t live; /* workers that have not ended */
};

static void *shared_alloc(size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory != MAP_FAILED ? memory : NULL;
}

static void result_store(struct warm_result *result, kjit_status status, uint32_t origin, const char *message) {
  result->origin = origin;
  snprintf(result->message, sizeof result->message, "%s", message);
  result->status = (int32_t)status;
}

/* ---- In a worker ---- */

static void request_build(kjit_runtime *runtime, const struct kernel_request *request, struct warm_result *result) {
  kjit_artifact *artifact = NULL;
  kjit_artifact_info info = {.struct_size = sizeof info};
  kjit_error error = {0};
  kjit_status status = request_artifact(runtime, request, 0, &artifact, &error);
  if (status == KJIT_OK) status = kjit_artifact_get_info(artifact, &info, &error);
  result_store(result, status, info.origin, error.message);
  kjit_artifact_release(artifact);
}

static void worker_loop(struct pool *pool, struct worker *self) {
  kjit_runtime *runtime = NULL;
  kjit_error error = {0};
  const kjit_status opened = open_runtime(&runtime, &error);
  for (;;) {
    const size_t task = atomic_fetch_add(&pool->shared->next, 1);
    if (task >= pool->list->count) break;
    atomic_store(&self->task, task);
    if (opened == KJIT_OK)
      request_build(runtime, &pool->list->items[task], &pool->shared->results[task]);
    else
      result_store(&pool->shared->results[task], opened, 0, error.message);
    atomic_store(&self->task, TASK_NONE);
    if (write(pool->done_pipe[1], "", 1) != 1) break; /* the parent is gone */
  }
  kjit_runtime_destroy(runtime);
}

/* ---- In the parent ---- */

static kjit_status worker_start(struct pool *pool, struct worker *worker, kjit_error *error) {
  atomic_store(&worker->task, TASK_NONE);
  interrupt_hold();
  const pid_t process = fork();
  if (process != 0) interrupt_let();
  if (process < 0) return error_say(error, KJIT_ERR_IO, "a process could not be started: %s", strerror(errno));
  if (process == 0) {
    close(pool->done_pipe[0]);
    interrupt_worker();
    worker_loop(pool, worker);
    _exit(EXIT_DONE);
  }
  worker->process = process;
  pool->live++;
  return KJIT_OK;
}

/* A worker ended. A request that it left behind has failed; a new worker takes the requests that are left. */
static kjit_status worker_ended(struct pool *pool, struct worker *worker, int how, kjit_error *error) {
  const size_t task = atomic_load(&worker->task);
  worker->process = 0;
  pool->live--;
  if (task == TASK_NONE) return KJIT_OK;
  char message[96];
  snprintf(message, sizeof message, "the compiler's process ended %s %d", WIFSIGNALED(how) ? "by signal" : "with code",
           WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how));
  result_store(&pool->shared->results[task], KJIT_ERR_COMPILE, 0, message);
  pool->done++;
  return worker_start(pool, worker, error);
}

static struct worker *worker_of(struct pool *pool, pid_t process) {
  for (size_t i = 0; i < pool->jobs; i++)
    if (pool->shared->workers[i].process == process) return &pool->shared->workers[i];
  return NULL;
}

static kjit_status workers_reap(struct pool *pool, kjit_error *error) {
  int how;
  for (pid_t process; (process = waitpid(-1, &how, WNOHANG)) > 0;) {
    struct worker *worker = worker_of(pool, process);
    const kjit_status status = worker != NULL ? worker_ended(pool, worker, how, error) : KJIT_OK;
    if (status != KJIT_OK) return status;
  }
  return KJIT_OK;
}

/* Wait for a report or for LOOK_MS. */
static void reports_take(struct pool *pool) {
  struct pollfd waiting = {.fd = pool->done_pipe[0], .events = POLLIN};
  char reports[256];
  if (poll(&waiting, 1, LOOK_MS) <= 0) return;
  const ssize_t taken = read(pool->done_pipe[0], reports, sizeof reports);
  if (taken > 0) pool->done += (size_t)taken;
}

static kjit_status pool_wait(struct pool *pool, warm_progress progress, void *user, kjit_error *error) {
  kjit_status status = KJIT_OK;
  while (status == KJIT_OK && pool->live > 0 && pool->done < pool->list->count && interrupt_signal() == 0) {
    progress(user, pool->done, pool->list->count);
    reports_take(pool);
    status = workers_reap(pool, error);
  }
  progress(user, pool->done, pool->list->count);
  return status;
}

/* Wait for the workers that still run, after terminating them if `kill_workers` is set, so that no child outlives the
 * pool. */
static void pool_stop(struct pool *pool, bool kill_workers) {
  for (size_t i = 0; i < pool->jobs; i++) {
    const pid_t process = pool->shared->workers[i].process;
    if (process == 0) continue;
    if (kill_workers) kill(process, SIGTERM);
    waitpid(process, NULL, 0);
  }
}

static kjit_status pool_start(struct pool *pool, kjit_error *error) {
  for (size_t i = 0; i < pool->jobs; i++) {
    const kjit_status status = worker_start(pool, &pool->shared->workers[i], error);
    if (status != KJIT_OK) return status;
  }
  return KJIT_OK;
}

static kjit_status pool_run(struct pool *pool, warm_progress progress, void *user, kjit_error *error) {
  if (pipe(pool->done_pipe) != 0) return error_say(error, KJIT_ERR_IO, "pipe: %s", strerror(errno));
  fflush(NULL); /* otherwise workers would print what the parent has buffered a second time */
  kjit_status status = pool_start(pool, error);
  if (status == KJIT_OK) status = pool_wait(pool, progress, user, error);
  pool_stop(pool, status != KJIT_OK || interrupt_signal() != 0);
  close(pool->done_pipe[0]);
  close(pool->done_pipe[1]);
  return status;
}

kjit_status warm_pool_run(const struct request_list *list, size_t jobs, warm_progress progress, void *user,
                          struct warm_result **results, kjit_error *error) {
  struct pool pool = {.list = list, .jobs = jobs < list->count ? jobs : list->count};
  kjit_status status = KJIT_ERR_NO_MEMORY;
  *results = shared_alloc((list->count + 1) * sizeof **results);
  pool.shared = shared_alloc(sizeof *pool.shared + (pool.jobs + 1) * sizeof *pool.shared->workers);
  if (*results == NULL || pool.shared == NULL) {
    error_say(error, status, "out of memory for %zu results", list->count);
    goto done;
  }
  pool.shared->workers = (struct worker *)(pool.shared + 1);
  pool.shared->results = *results;
  for (size_t i = 0; i < list->count; i++)
    result_store(&(*results)[i], KJIT_ERR_CANCELLED, 0, "not built: interrupted");
  status = pool_run(&pool, progress, user, error);
done:
  if (pool.shared != NULL) munmap(pool.shared, sizeof *pool.shared + (pool.jobs + 1) * sizeof *pool.shared->workers);
  if (status != KJIT_OK) warm_results_free(*results, list->count);
  if (status != KJIT_OK) *results = NULL;
  return status;
}

void warm_results_free(struct warm_result *results, size_t count) {
  if (results != NULL) munmap(results, (count + 1) * sizeof *results);
}
