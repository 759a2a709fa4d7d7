/* The compile server: compiles in child processes instead of this one.
 *
 * The server is a process, kjit-compile-worker, that is started when the first compile is needed and forks a process
 * for each (worker.h). So compiles run side by side on all cores, although NVRTC's front end takes one program at a
 * time in a process; a deadline or a cancellation kills the compile in whatever phase it is; a compiler that crashes,
 * hangs or eats memory costs one kernel; and headers can be held precompiled (keepers.h).
 *
 * Where the system refuses any of it, compile_server_run() says so by `*ran`, once by the log, and the caller compiles
 * in its own process. Thread-safe. */
#ifndef KJIT_JIT_SERVER_SERVER_H
#define KJIT_JIT_SERVER_SERVER_H

#include <stdbool.h>

#include "jit/server/server_settings.h"

struct compile_server;

/* Starts nothing yet. */
kjit_status compile_server_create(struct compile_server **out, const struct compile_server_settings *settings,
                                  kjit_error *error);
void compile_server_destroy(struct compile_server *server); /* ends every process; accepts NULL */

/* As compile_run(), in a process of its own. False: nothing was compiled, because there is no server to be had; then
 * `*status` is not set. Beside compile_run()'s results:
 * KJIT_ERR_COMPILE    the compiler crashed or left: the error says how, the log is what it had printed
 * KJIT_ERR_NO_MEMORY  it reached its bound, or the system killed it */
bool compile_server_run(struct compile_server *server, const struct jit_request *request, compile_stop stop,
                        void *stop_user, struct compile_result *result, kjit_status *status, kjit_error *error);

/* Around fork(), as for struct fork_guard. The child starts a server of its own when it needs one. Accept NULL. */
void compile_server_fork_prepare(struct compile_server *server);
void compile_server_fork_parent(struct compile_server *server);
void compile_server_fork_child(struct compile_server *server);

#endif
