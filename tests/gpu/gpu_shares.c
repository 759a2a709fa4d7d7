/* Work of a GPU test in several processes: gpu_shares.h.
 *
 * 1. gpu_share() forks the processes. What they share is a page of memory: the next item, and what came of all.
 * 2. Each opens the GPU, takes one item after the other until none is left, and ends without returning to cmocka.
 * 3. gpu_share() waits for all of them.
 *
 * Threads: one in each process. */
#include "gpu_shares.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/test.h"

enum { MOST_PROCESSES = 16 };

struct shared {
  atomic_size_t next, failures;
  atomic_bool has_no_gpu;
};

static size_t process_count(size_t items) {
  const char *const asked = getenv("KJIT_TEST_JOBS");
  const long cores = asked ? strtol(asked, NULL, 10) : sysconf(_SC_NPROCESSORS_ONLN);
  size_t count = cores > 0 ? (size_t)cores : 1;
  if (count > MOST_PROCESSES) count = MOST_PROCESSES;
  return count < items ? count : items;
}

static _Noreturn void work_in_child(struct shared *shared, size_t count, gpu_work *work) {
  void *state = NULL;
  bool failed = gpu_setup(&state) != 0;
  struct gpu_fixture *const fixture = state;
  if (!failed && !fixture->present) atomic_store(&shared->has_no_gpu, true);
  while (!failed && fixture->present) {
    const size_t index = atomic_fetch_add(&shared->next, 1);
    if (index >= count) break;
    if (!work(fixture, index)) atomic_fetch_add(&shared->failures, 1);
  }
  if (!failed) failed = gpu_teardown(&state) != 0;
  fflush(NULL);
  _exit(failed);
}

static bool ended_well(pid_t id) {
  int status = 0;
  while (waitpid(id, &status, 0) < 0 && errno == EINTR)
    ;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

size_t gpu_share(size_t count, gpu_work *work) {
  pid_t ids[MOST_PROCESSES];
  size_t started = 0, failures = 0;
  const size_t wanted = process_count(count);
  struct shared *const shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(shared != MAP_FAILED);
  *shared = (struct shared){0};
  fflush(NULL);
  while (started < wanted && (ids[started] = fork()) > 0)
    started++;
  if (started < wanted && ids[started] == 0) work_in_child(shared, count, work);
  for (size_t i = 0; i < started; i++) {
    if (ended_well(ids[i])) continue;
    print_error("a process of %zu that shared the work ended badly\n", started);
    failures++;
  }
  failures += atomic_load(&shared->failures);
  const bool has_no_gpu = atomic_load(&shared->has_no_gpu);
  munmap(shared, sizeof *shared);
  if (count && !started) fail_msg("no process could be started");
  if (has_no_gpu && !failures) skip();
  return failures;
}
