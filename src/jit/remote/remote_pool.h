/* Idle connections of a store, which any thread takes and gives back without a lock. Those that a forked child inherits
 * are forgotten there, because two processes must not speak on one connection. */
#ifndef KJIT_JIT_REMOTE_REMOTE_POOL_H
#define KJIT_JIT_REMOTE_REMOTE_POOL_H

#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#define REMOTE_POOL_SLOTS 16

struct remote_pool {
  _Atomic(void *) slots[REMOTE_POOL_SLOTS];
  _Atomic(long) process; /* whose they are */
};

/* One that is idle, or NULL. */
static inline void *remote_pool_take(struct remote_pool *pool) {
  const long here = (long)getpid();
  void *taken = NULL;
  if (atomic_exchange(&pool->process, here) != here)
    for (int i = 0; i < REMOTE_POOL_SLOTS; i++)
      atomic_store(&pool->slots[i], NULL);
  for (int i = 0; i < REMOTE_POOL_SLOTS && !taken; i++)
    taken = atomic_exchange(&pool->slots[i], NULL);
  return taken;
}

/* Keep a connection. Returns the one that there is no room for, or NULL. */
static inline void *remote_pool_give(struct remote_pool *pool, void *connection) {
  for (int i = 0; i < REMOTE_POOL_SLOTS && connection; i++)
    connection = atomic_exchange(&pool->slots[i], connection);
  return connection;
}

#endif
