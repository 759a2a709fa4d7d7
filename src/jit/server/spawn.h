/* The worker's program: where it is, how it is started and how it is ended. */
#ifndef KJIT_JIT_SERVER_SPAWN_H
#define KJIT_JIT_SERVER_SPAWN_H

#include <stdbool.h>

#include <sys/types.h>

#include "base/dynlib.h"

/* Find kjit-compile-worker: `asked`, or $KJIT_WORKER (when `use_environment`), or else beside the library or the
 * program that has it inside, and in the libexec folder that belongs to either. KJIT_ERR_NOT_FOUND. */
kjit_status spawn_find(char path[DYNLIB_PATH_BYTES], const char *asked, bool use_environment, kjit_error *error);

/* Start it for this NVRTC, with our end of the control socket in `*control`. The process has default signal handling,
 * none of our descriptors that are close-on-exec, and a process group of its own, so that a terminal's interrupt
 * reaches the caller alone. KJIT_ERR_IO with errno: the system refuses. Safe in a process with threads: no code of ours
 * runs between fork and exec. */
kjit_status spawn_start(const char *path, const char *nvrtc_path, pid_t *process, int *control, kjit_error *error);

/* Kill the process if it still runs, and take its exit status, so that no zombie stays. Does nothing if somebody else
 * has waited for it. */
void spawn_end(pid_t process);

#endif
