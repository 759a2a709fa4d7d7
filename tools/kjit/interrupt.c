/* What SIGINT, SIGTERM and SIGHUP do while `kjit warm`, `bundle create` and `tune` work: they are noted, not obeyed at
 * once, so that finished kernels are reported and the table is left whole.
 *
 * 1. interrupt_catch() installs the handler, except for signals that were ignored (nohup).
 * 2. The work asks interrupt_signal() now and then and stops by itself.
 * 3. interrupt_release() restores the handlers, and interrupt_pass_on() raises the noted signal again, so that the
 *    shell sees that the command was interrupted.
 *
 * The handler only writes a sig_atomic_t. Threads that are started between
 * interrupt_hold() and interrupt_let() leave the signals to the thread that starts them. */
#include "interrupt.h"

#include <signal.h>
#include <stddef.h>

static const int caught[] = {SIGINT, SIGTERM, SIGHUP};
enum { CAUGHT_COUNT = sizeof caught / sizeof *caught };

static struct sigaction before[CAUGHT_COUNT];
static volatile sig_atomic_t noted;

static void note(int signal) {
  noted = signal;
}

void interrupt_catch(void) {
  struct sigaction action = {.sa_handler = note};
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < CAUGHT_COUNT; i++) {
    sigaction(caught[i], NULL, &before[i]);
    if (before[i].sa_handler != SIG_IGN) sigaction(caught[i], &action, NULL);
  }
}

static void mask(int how) {
  sigset_t set;
  sigemptyset(&set);
  for (size_t i = 0; i < CAUGHT_COUNT; i++)
    sigaddset(&set, caught[i]);
  sigprocmask(how, &set, NULL);
}

void interrupt_hold(void) {
  mask(SIG_BLOCK);
}

void interrupt_let(void) {
  mask(SIG_UNBLOCK);
}

int interrupt_signal(void) {
  return noted;
}

void interrupt_release(void) {
  for (size_t i = 0; i < CAUGHT_COUNT; i++)
    sigaction(caught[i], &before[i], NULL);
}

void interrupt_pass_on(void) {
  if (noted == 0) return;
  signal(noted, SIG_DFL);
  raise(noted);
}
