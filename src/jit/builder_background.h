/* Compiles that outlive the calls that asked for them, in threads of their own.
 *
 * NVRTC's front end cannot be interrupted, and a compile that was killed at each deadline would never be done. So a
 * call with a deadline hands its flight (resident.h) to a thread that owns everything it reads, and waits for the
 * flight as any other thread would. A caller whose time has passed leaves; the thread goes on, for a bounded time,
 * publishes, and lands the flight for whoever asks next. With a compile server a compile whose callers have all
 * cancelled is killed. A request that publishes later is handed to a thread too. The builder's end asks the threads to
 * stop and waits for them: the server's compiles are killed, NVRTC in this process is stopped when its front end is
 * through. */
#ifndef KJIT_JIT_BUILDER_BACKGROUND_H
#define KJIT_JIT_BUILDER_BACKGROUND_H

#include <stdbool.h>

#include "jit/builder_call.h"

void background_init(struct builder *builder);
void background_finish(struct builder *builder); /* waits for every thread */

/* Hand a flight to a thread, which ends it with resident_land(). Returns false when no thread can be had and the flight
 * is still the caller's; `*full` says that the reason is the number of threads that run already. */
bool background_start(const struct builder_call *call, struct flight *flight, bool refused, bool *full);

/* Around fork(), as for struct fork_guard. The child has none of the threads. */
void background_fork_prepare(struct builder *builder);
void background_fork_parent(struct builder *builder);
void background_fork_child(struct builder *builder);

#endif
