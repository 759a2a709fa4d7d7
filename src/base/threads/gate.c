/* A gate: work that one thread does once while the others that need it wait.
 *
 * The state of a gate is one atomic integer. Whoever finds it open goes on without a lock. Everybody else takes the
 * keeper's mutex: the first changes the state from closed to busy and leaves with the work to do; the others wait on
 * the keeper's condition until the worker has called gate_leave(). The mutex is never held while the work is done. */
#include "base/threads/gate.h"

bool gate_keeper_init(struct gate_keeper *keeper) {
  if (pthread_mutex_init(&keeper->lock, NULL)) return false;
  if (pthread_cond_init(&keeper->changed, NULL)) {
    pthread_mutex_destroy(&keeper->lock);
    return false;
  }
  return true;
}

void gate_keeper_finish(struct gate_keeper *keeper) {
  pthread_cond_destroy(&keeper->changed);
  pthread_mutex_destroy(&keeper->lock);
}

bool gate_enter(struct gate_keeper *keeper, struct gate *gate) {
  if (gate_is_open(gate)) return false;
  pthread_mutex_lock(&keeper->lock);
  while (atomic_load_explicit(&gate->state, memory_order_relaxed) == GATE_BUSY)
    pthread_cond_wait(&keeper->changed, &keeper->lock);
  const bool mine = atomic_load_explicit(&gate->state, memory_order_relaxed) == GATE_CLOSED;
  if (mine) atomic_store_explicit(&gate->state, GATE_BUSY, memory_order_relaxed);
  pthread_mutex_unlock(&keeper->lock);
  return mine;
}

void gate_leave(struct gate_keeper *keeper, struct gate *gate, bool open) {
  pthread_mutex_lock(&keeper->lock);
  atomic_store_explicit(&gate->state, open ? GATE_OPEN : GATE_CLOSED, memory_order_release);
  pthread_cond_broadcast(&keeper->changed);
  pthread_mutex_unlock(&keeper->lock);
}
