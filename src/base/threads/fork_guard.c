/* One set of pthread_atfork() handlers for the process, and a list of guards that they call.
 *
 * Before fork() every guard's prepare() takes the locks that it protects, so that no other thread is inside them
 * when the process is copied. Afterwards parent() gives them back in the parent, and child() in the child, where it
 * also forgets what only the parent's other threads could finish.
 *
 * The list is protected by one mutex, which is held from before the fork until after it, in both processes. Guards
 * may be added and removed by any thread, but not from inside a guard's own functions. pthread_atfork() has no
 * counterpart that removes handlers, so they stay, with an empty list, for as long as the library is loaded. */
#include "base/threads/fork_guard.h"

#include <pthread.h>
#include <stddef.h>

static pthread_mutex_t guards_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct fork_guard *guards;
static bool handlers_are_there;

static void before(void) {
  pthread_mutex_lock(&guards_mutex);
  for (struct fork_guard *guard = guards; guard; guard = guard->next)
    guard->prepare(guard->user);
}

static void after_in_parent(void) {
  for (struct fork_guard *guard = guards; guard; guard = guard->next)
    guard->parent(guard->user);
  pthread_mutex_unlock(&guards_mutex);
}

static void after_in_child(void) {
  for (struct fork_guard *guard = guards; guard; guard = guard->next)
    guard->child(guard->user);
  pthread_mutex_unlock(&guards_mutex);
}

static void add_handlers(void) {
  handlers_are_there = !pthread_atfork(before, after_in_parent, after_in_child);
}

bool fork_guard_add(struct fork_guard *guard) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, add_handlers);
  if (!handlers_are_there) return false;
  pthread_mutex_lock(&guards_mutex);
  guard->next = guards;
  guard->link = &guards;
  if (guards) guards->link = &guard->next;
  guards = guard;
  pthread_mutex_unlock(&guards_mutex);
  return true;
}

bool fork_guard_remove(struct fork_guard *guard) {
  pthread_mutex_lock(&guards_mutex);
  const bool is_there = guard->link != NULL; /* its neighbours write to it as they come and go */
  if (is_there) {
    *guard->link = guard->next;
    if (guard->next) guard->next->link = guard->link;
    guard->link = NULL;
  }
  pthread_mutex_unlock(&guards_mutex);
  return is_there;
}
