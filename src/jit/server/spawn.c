/* Starting and ending the worker's process, from a library in a process that is not ours.
 *
 * posix_spawn() is used because it is the one way to start a process that is safe whatever threads are running and that
 * copies no page tables. The child is waited for by its own number alone, and there is no handler of SIGCHLD, because
 * both belong to the program. No state; any thread. */
#include "jit/server/spawn.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "jit/server/worker.h"

#define WORKER_NAME "kjit-compile-worker"

/* A path that somebody names is taken or refused, never replaced by another worker, because then a misspelt path would
 * go unnoticed. */
static kjit_status take_asked(char path[DYNLIB_PATH_BYTES], const char *asked, const char *by, kjit_error *error) {
  const size_t bytes = strlen(asked);
  if (bytes < DYNLIB_PATH_BYTES && *asked == '/' && access(asked, X_OK) == 0) {
    memcpy(path, asked, bytes + 1);
    return KJIT_OK;
  }
  return error_set(error, KJIT_ERR_NOT_FOUND, "%s: \"%.200s\" must be the absolute path of a program", by, asked);
}

/* Beside the library, or in the libexec folder of its installation. secure_getenv() keeps a program with raised rights
 * from starting what its caller's environment names. */
kjit_status spawn_find(char path[DYNLIB_PATH_BYTES], const char *asked, bool use_environment, kjit_error *error) {
  static const char *const places[] = {"/" WORKER_NAME, "/../libexec/" WORKER_NAME, "/../../libexec/" WORKER_NAME};
  if (asked) return take_asked(path, asked, "worker_path", error);
  const char *variable = use_environment ? secure_getenv("KJIT_WORKER") : NULL;
  if (variable && *variable) return take_asked(path, variable, "KJIT_WORKER", error);
  char here[DYNLIB_PATH_BYTES];
  if (!dynlib_own_folder(here))
    return error_set(error, KJIT_ERR_NOT_FOUND, WORKER_NAME ": the library's own folder is unknown");
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    const int length = snprintf(path, DYNLIB_PATH_BYTES, "%s%s", here, places[i]);
    if (length > 0 && length < DYNLIB_PATH_BYTES && access(path, X_OK) == 0) return KJIT_OK;
  }
  return error_set(error, KJIT_ERR_NOT_FOUND,
                   WORKER_NAME ": is neither in %.200s nor in its libexec folder; set KJIT_WORKER to its path", here);
}

/* The worker begins with no signal blocked or ignored, whatever the program does with its own, and in a process group
 * of its own, so that Ctrl-C in a terminal reaches the program alone. */
static void set_attributes(posix_spawnattr_t *attributes) {
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  (void)posix_spawnattr_setsigmask(attributes, &none);
  (void)posix_spawnattr_setsigdefault(attributes, &all);
  (void)posix_spawnattr_setpgroup(attributes, 0);
  (void)posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
}

static int spawn(const char *path, const char *nvrtc_path, int control, pid_t *process) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  char *const arguments[] = {(char *)(uintptr_t)path, (char *)(uintptr_t)nvrtc_path, NULL};
  int failed = posix_spawn_file_actions_init(&actions);
  if (failed) return failed;
  failed = posix_spawnattr_init(&attributes);
  if (!failed) {
    set_attributes(&attributes);
    failed = posix_spawn_file_actions_adddup2(&actions, control, WORKER_CONTROL);
    if (!failed) failed = posix_spawn(process, path, &actions, &attributes, arguments, environ);
    (void)posix_spawnattr_destroy(&attributes);
  }
  (void)posix_spawn_file_actions_destroy(&actions);
  return failed;
}

/* A socket of packets, so that a message and the sockets that travel with it arrive together or not at all. */
kjit_status spawn_start(const char *path, const char *nvrtc_path, pid_t *process, int *control, kjit_error *error) {
  int ends[2];
  *control = -1;
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
    return error_set_cause(error, KJIT_ERR_IO, KJIT_CAUSE_ERRNO, errno, "socketpair: %s", strerror(errno));
  const int failed = spawn(path, nvrtc_path, ends[1], process);
  (void)close(ends[1]);
  if (!failed) {
    *control = ends[0];
    return KJIT_OK;
  }
  (void)close(ends[0]);
  return error_set_cause(error, KJIT_ERR_IO, KJIT_CAUSE_ERRNO, failed, "%.200s: cannot be started: %s", path,
                         strerror(failed));
}

static pid_t wait_for(pid_t process, int options) {
  pid_t waited;
  do
    waited = waitpid(process, NULL, options);
  while (waited < 0 && errno == EINTR);
  return waited;
}

void spawn_end(pid_t process) {
  if (wait_for(process, WNOHANG) != 0)
    return; /* it had ended, or was waited for by the program: its number is not ours */
  (void)kill(process, SIGKILL);
  (void)wait_for(process, 0);
}
