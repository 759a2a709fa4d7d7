/* Work that is done once, by one thread, while the others that need it wait. A gate is closed until somebody has done
 * its work; asking whether it is open is one load. No lock is held while the work is done. */
#ifndef KJIT_BASE_GATE_H
#define KJIT_BASE_GATE_H

#include <pthread.h>
#include <stdatomic.h>

/* Where threads wait; any number of gates share one. */
struct gate_keeper {
  pthread_mutex_t lock;
  pthread_cond_t changed;
};

enum gate_state { GATE_CLOSED, GATE_BUSY, GATE_OPEN };

/* All zero is a closed gate. */
struct gate {
  _Atomic(int) state;
};

_Bool gate_keeper_init(struct gate_keeper *keeper); /* false: the system is out of resources */
void gate_keeper_finish(struct gate_keeper *keeper);

/* Everything that its worker wrote before gate_leave() is visible to who sees it open. */
static inline _Bool gate_is_open(const struct gate *gate) {
  return atomic_load_explicit(&gate->state, memory_order_acquire) == GATE_OPEN;
}

/* Wait until the gate is open (false) or this thread's to work on (true): then gate_leave() must follow. */
_Bool gate_enter(struct gate_keeper *keeper, struct gate *gate);

/* Open it for good, or close it again, so that the next thread in the queue tries. */
void gate_leave(struct gate_keeper *keeper, struct gate *gate, _Bool open);

#endif
