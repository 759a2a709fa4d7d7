/* Which cache locks a builder holds, so that a forked child can close its copies: a lock belongs to the open file, and
 * the child's copy would keep it after the parent's death. */
#ifndef KJIT_JIT_BUILDER_HELD_H
#define KJIT_JIT_BUILDER_HELD_H

#include "jit/builder_internal.h"

/* A lock is on the list from before it is taken until it is to be released. */
void builder_held_add(struct builder *builder, struct cache_lock *lock);
void builder_held_remove(struct builder *builder, struct cache_lock *lock);

#endif
