/* A builder's part in fork(): every lock is taken in the order of builder.c's calls, so that the child finds no state
 * half changed. Runs in the thread that forks. */
#include "jit/builder_fork.h"

#include "jit/builder_background.h"

static void prepare(void *user) {
  struct builder *builder = user;
  pthread_mutex_lock(&builder->held_mutex);
  resident_fork_prepare(builder->resident);
  record_fork_prepare(builder->record);
  background_fork_prepare(builder);
  compile_server_fork_prepare(builder->server);
  source_memo_fork_prepare(builder->memo);
  remote_fork_prepare(builder->remote);
}

static void parent(void *user) {
  struct builder *builder = user;
  remote_fork_parent(builder->remote);
  source_memo_fork_done(builder->memo);
  compile_server_fork_parent(builder->server);
  background_fork_parent(builder);
  record_fork_done(builder->record);
  resident_fork_parent(builder->resident);
  pthread_mutex_unlock(&builder->held_mutex);
}

static void child(void *user) {
  struct builder *builder = user;
  remote_fork_child(builder->remote);
  source_memo_fork_done(builder->memo);
  compile_server_fork_child(builder->server);
  background_fork_child(builder);
  record_fork_done(builder->record);
  resident_fork_child(builder->resident);
  /* A lock belongs to the open file, which parent and child now share. Our copy is closed, otherwise it would hold the
   * lock when the parent dies. */
  for (struct cache_lock *lock = builder->held; lock; lock = lock->next) {
    if (lock->file >= 0) (void)builder->ops->close(builder->ops->user, lock->file);
    lock->file = -1;
  }
  builder->held = NULL;
  /* The child inherits the parent's unwritten counts. They are marked as written, because otherwise both processes
   * would add them to the usage file. */
  for (int i = 0; i < CACHE_COUNTERS; i++)
    atomic_store(&builder->counters.flushed[i], count_get(&builder->counters, (enum cache_counter)i));
  pthread_mutex_unlock(&builder->held_mutex);
}

bool builder_fork_init(struct builder *builder) {
  if (pthread_mutex_init(&builder->held_mutex, NULL)) return false;
  builder->guard = (struct fork_guard){.prepare = prepare, .parent = parent, .child = child, .user = builder};
  if (fork_guard_add(&builder->guard)) return true;
  pthread_mutex_destroy(&builder->held_mutex);
  return false;
}

void builder_fork_finish(struct builder *builder) {
  if (fork_guard_remove(&builder->guard)) pthread_mutex_destroy(&builder->held_mutex);
}
