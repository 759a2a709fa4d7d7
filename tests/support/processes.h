/* Tests of several processes: they are forked, share one fake compiler, run a function each, and are waited for or
 * killed.
 */
#ifndef KJIT_TESTS_SUPPORT_PROCESSES_H
#define KJIT_TESTS_SUPPORT_PROCESSES_H

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "support/cache_world.h"

#define PROCESSES_MAX 128

struct processes {
  pid_t ids[PROCESSES_MAX];
  size_t count;
};

static inline double processes_now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static inline void processes_sleep_ms(long ms) {
  const struct timespec span = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&span, NULL);
}

/* Move the fake compiler's state to shared memory, so that compiles of all processes are counted together. */
static inline int processes_setup(void **state) {
  void *shared =
      mmap(NULL, sizeof(struct fake_nvrtc_counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return -1;
  fake_nvrtc_state = shared;
  return cache_world_setup(state);
}

/* The builder goes first, because a compile that its caller no longer waits for may still read the shared state. */
static inline int processes_teardown(void **state) {
  const int result = cache_world_teardown(state);
  munmap(fake_nvrtc_state, sizeof(struct fake_nvrtc_counts));
  fake_nvrtc_state = &fake_nvrtc_own;
  return result;
}

/* Fork a child that runs `work` on the world, with a builder of its own, and exits with its result. */
static inline pid_t processes_start(struct processes *processes, struct cache_world *world,
                                    int (*work)(struct cache_world *world, long argument), long argument) {
  fflush(NULL);
  const pid_t id = fork();
  if (!id) {
    const int result = cache_world_open(world, NULL) == KJIT_OK ? work(world, argument) : 99;
    builder_destroy(world->builder);
    _exit(result);
  }
  if (id > 0 && processes && processes->count < PROCESSES_MAX) processes->ids[processes->count++] = id;
  return id;
}

/* Is any child still running? Does not wait. */
static inline bool processes_running(const struct processes *processes) {
  for (size_t i = 0; i < processes->count; i++) {
    siginfo_t info = {.si_pid = 0};
    if (waitid(P_PID, (id_t)processes->ids[i], &info, WEXITED | WNOHANG | WNOWAIT) == 0 && !info.si_pid) return true;
  }
  return false;
}

/* The child's exit status, or 128 + the signal that ended it. */
static inline int processes_wait(pid_t id) {
  int status = 0;
  while (waitpid(id, &status, 0) < 0 && errno == EINTR)
    ;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Wait for all children. Returns the first result that is neither 0 nor `but_also`, or 0. */
static inline int processes_wait_all(struct processes *processes, int but_also) {
  int first = 0;
  for (size_t i = 0; i < processes->count; i++) {
    const int result = processes_wait(processes->ids[i]);
    if (result && result != but_also && !first) first = result;
  }
  processes->count = 0;
  return first;
}

static inline void processes_kill_all(struct processes *processes) {
  for (size_t i = 0; i < processes->count; i++)
    kill(processes->ids[i], SIGKILL);
}

#endif
