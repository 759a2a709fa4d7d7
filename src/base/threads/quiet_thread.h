/* A thread of the library's own, of which the program notices nothing but its work. */
#ifndef KJIT_BASE_QUIET_THREAD_H
#define KJIT_BASE_QUIET_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* Start a thread that may run NVRTC: it has a stack as large as a program's main thread and all signals blocked,
 * because the program's signal handlers must run in the program's threads. False when the system has no thread to give.
 */
bool quiet_thread_start(pthread_t *thread, void *(*run)(void *user), void *user);

#endif
