/* fork() while other threads are at work: what a guard protects is quiet while the process is copied, and the child
 * starts from a known state. One set of handlers per process, any number of guards. */
#ifndef KJIT_JIT_FORK_GUARD_H
#define KJIT_JIT_FORK_GUARD_H

struct fork_guard {
  void (*prepare)(void *user); /* before, in the parent: take every lock */
  void (*parent)(void *user);  /* after: give them back */
  void (*child)(void *user);   /* after: the same, and forget what only the parent's other threads could finish */
  void *user;
  struct fork_guard *next, **link;
};

/* False when the system has no memory for the handlers. */
_Bool fork_guard_add(struct fork_guard *guard);
/* False for one that was not added. */
_Bool fork_guard_remove(struct fork_guard *guard);

#endif
