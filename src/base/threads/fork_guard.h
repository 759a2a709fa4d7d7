/* fork() while other threads are at work: no thread is inside what a guard protects while the process is copied, and
 * the child starts from a known state. There is one set of handlers per process and any number of guards. */
#ifndef KJIT_BASE_FORK_GUARD_H
#define KJIT_BASE_FORK_GUARD_H

#include <stdbool.h>

struct fork_guard {
  void (*prepare)(void *user); /* before the fork, in the parent: take every lock */
  void (*parent)(void *user);  /* after it, in the parent: release them */
  void (*child)(void *user); /* after it, in the child: release them, drop the work of threads that do not exist here */
  void *user;
  struct fork_guard *next, **link;
};

/* Put the guard on the list. False when the system has no memory for the handlers. */
bool fork_guard_add(struct fork_guard *guard);
/* Take the guard off the list. False when it is not on it. */
bool fork_guard_remove(struct fork_guard *guard);

#endif
