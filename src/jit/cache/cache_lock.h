/* One builder per key across processes and machines that share a folder.
 *
 * Life cycle: cache_lock_init(); cache_lock_try() until it is not CACHE_LOCK_BUSY; after CACHE_LOCK_TAKEN the work and
 * cache_lock_release(). A caller whose patience ends calls cache_lock_give_up() and works without the lock.
 *
 * The lock is a range of one byte in the file "locks" of the cache folder, at an offset that the key's digest gives:
 * the kernel (over NFS, the server) frees it when its holder dies, and no lock file is ever made or removed per key.
 * Where the file system has no such locks, a file in "building" stands in: made exclusively, removed by its maker, and
 * taken for abandoned when somebody has waited for it up to the bound on all waiting. */
#ifndef KJIT_JIT_CACHE_CACHE_LOCK_H
#define KJIT_JIT_CACHE_CACHE_LOCK_H

#include <stdbool.h>

#include "base/digest.h"
#include "jit/cache/file_ops.h"

enum cache_lock_result {
  CACHE_LOCK_TAKEN,      /* ours; release it */
  CACHE_LOCK_BUSY,       /* somebody else builds this key: try again in a while */
  CACHE_LOCK_UNAVAILABLE /* neither kind works here: build without */
};

struct cache_lock {
  int file;                      /* -1: not taken */
  off_t offset;                  /* of the locked byte */
  char marker[DIGEST_HEX_BYTES]; /* name of the stand-in */
  bool marked;                   /* taken by the stand-in */
  ino_t awaited;                 /* somebody else's stand-in that was in the way; 0: none */
  struct cache_lock *next;       /* for its owner's list */
};

void cache_lock_init(struct cache_lock *lock, const struct digest *key);
enum cache_lock_result cache_lock_try(struct cache_lock *lock, const struct file_ops *ops, int folder);
void cache_lock_release(struct cache_lock *lock, const struct file_ops *ops, int folder);

/* Called after the longest wait that is allowed: the marker that is still in the way is abandoned, so it is removed. */
void cache_lock_give_up(struct cache_lock *lock, const struct file_ops *ops, int folder);

#endif
