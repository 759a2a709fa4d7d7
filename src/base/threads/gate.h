/* Work that is done once, by one thread, while the others that need it wait. Loading a kernel on its first launch is
 * such work. Asking whether it is done is one load, and no lock is held while it is done.
 *
 * Life cycle of a gate:
 *
 *   closed --gate_enter() true--> busy --gate_leave(open)--> open, for good
 *                                  |
 *                                  +----gate_leave(!open)--> closed: the work failed, the next thread may try
 *
 * gate_enter() returns true to exactly one thread while the gate is busy; that thread must call gate_leave(). The
 * others wait inside gate_enter(), which returns false to them once the gate is open. */
#ifndef KJIT_BASE_GATE_H
#define KJIT_BASE_GATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* The mutex and condition by which threads wait. Many gates share one keeper, because waiting is rare. */
struct gate_keeper {
  pthread_mutex_t lock;
  pthread_cond_t changed;
};

enum gate_state { GATE_CLOSED, GATE_BUSY, GATE_OPEN };

/* All zero is a closed gate. */
struct gate {
  _Atomic(int) state;
};

bool gate_keeper_init(struct gate_keeper *keeper); /* false: the system is out of resources */
void gate_keeper_finish(struct gate_keeper *keeper);

/* A thread that sees the gate open also sees everything that the worker wrote before gate_leave(). */
static inline bool gate_is_open(const struct gate *gate) {
  return atomic_load_explicit(&gate->state, memory_order_acquire) == GATE_OPEN;
}

/* Wait until the gate is open, and return false; or return true when the work is this thread's. */
bool gate_enter(struct gate_keeper *keeper, struct gate *gate);

/* End the work: open the gate for good, or close it again after a failure so that a waiting thread can try. */
void gate_leave(struct gate_keeper *keeper, struct gate *gate, bool open);

#endif
