/* Starts threads of the library's own: see quiet_thread.h. Any thread may start one. */
#include "base/threads/quiet_thread.h"

#include <signal.h>

/* NVRTC recurses as deeply as templates nest. It is made for a program's main thread, which usually has 8 MiB. */
#define STACK_BYTES ((size_t)16 << 20)

bool quiet_thread_start(pthread_t *thread, void *(*run)(void *user), void *user) {
  pthread_attr_t attributes;
  sigset_t all, before;
  if (pthread_attr_init(&attributes)) return false;
  sigfillset(&all);
  (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
  (void)pthread_sigmask(SIG_SETMASK, &all, &before);
  const bool started = !pthread_create(thread, &attributes, run, user);
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
  (void)pthread_attr_destroy(&attributes);
  return started;
}
