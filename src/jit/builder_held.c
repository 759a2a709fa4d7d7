/* The list of a builder's cache locks that are held: see builder_held.h. `held_mutex` guards it. */
#include "jit/builder_held.h"

void builder_held_add(struct builder *builder, struct cache_lock *lock) {
  pthread_mutex_lock(&builder->held_mutex);
  lock->next = builder->held;
  builder->held = lock;
  pthread_mutex_unlock(&builder->held_mutex);
}

void builder_held_remove(struct builder *builder, struct cache_lock *lock) {
  pthread_mutex_lock(&builder->held_mutex);
  for (struct cache_lock **link = &builder->held; *link; link = &(*link)->next)
    if (*link == lock) {
      *link = lock->next;
      break;
    }
  pthread_mutex_unlock(&builder->held_mutex);
}
