/* The lock of a key: one byte of the file "locks", or a marker file where the file system has no locks.
 *
 * cache_lock_try() opens "locks", asks for an exclusive lock on the byte that the key's digest selects, and then
 * makes sure that the file is still the one of that name, because somebody may have deleted the whole folder. It
 * never waits; a builder calls it again after a pause. If the file system refuses locks altogether, the marker
 * "building/<key>" is made exclusively; whoever made it removes it.
 *
 * Two threads of a process exclude each other as two processes do, because each opens the file for itself and the
 * lock belongs to the open file. A process that dies frees its byte; a marker that nobody removed is taken away by
 * cache_lock_give_up(). */
#include "jit/cache/cache_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define LOCK_FILE     "locks"
#define MARKER_FOLDER "building"

void cache_lock_init(struct cache_lock *lock, const struct digest *key) {
  uint64_t offset;
  memcpy(&offset, key->bytes, sizeof offset);
  /* 62 bits, so that offset + 1 fits a signed 64-bit file offset. Two keys of one cache practically never share a byte.
   */
  *lock = (struct cache_lock){.file = -1, .offset = (off_t)(offset >> 2)};
  digest_to_hex(key, lock->marker);
}

/* Is the locked file still the one that others will open? It is not if somebody deleted the whole folder. */
static bool still_there(const struct file_ops *ops, int folder, int file) {
  struct stat held, named;
  return ops->stat(ops->user, file, &held) == 0 && ops->stat_at(ops->user, folder, LOCK_FILE, &named) == 0 &&
         held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

static int try_range(struct cache_lock *lock, const struct file_ops *ops, int folder) {
  const int file = ops->open(ops->user, folder, LOCK_FILE, O_RDWR | O_CREAT, 0600);
  if (file < 0) return file;
  /* The descriptor is noted before it is locked, so that a child forked at any moment knows what to close. */
  lock->file = file;
  int done = ops->lock(ops->user, file, lock->offset, 1);
  if (done == 0 && !still_there(ops, folder, file)) done = -EAGAIN;
  if (done == 0) return 0;
  lock->file = -1;
  (void)ops->close(ops->user, file);
  return done;
}

static int open_markers(const struct file_ops *ops, int folder) {
  (void)ops->make_folder(ops->user, folder, MARKER_FOLDER, 0700);
  return ops->open(ops->user, folder, MARKER_FOLDER, O_RDONLY | O_DIRECTORY, 0);
}

static enum cache_lock_result try_marker(struct cache_lock *lock, const struct file_ops *ops, int folder) {
  const int markers = open_markers(ops, folder);
  if (markers < 0) return CACHE_LOCK_UNAVAILABLE;
  enum cache_lock_result result = CACHE_LOCK_UNAVAILABLE;
  struct stat status;
  const int made = ops->open(ops->user, markers, lock->marker, O_RDWR | O_CREAT | O_EXCL, 0600);
  if (made >= 0) {
    lock->file = made;
    lock->marked = true;
    result = CACHE_LOCK_TAKEN;
  } else if (made == -EEXIST) {
    result = CACHE_LOCK_BUSY;
    if (ops->stat_at(ops->user, markers, lock->marker, &status) == 0) lock->awaited = status.st_ino;
  }
  (void)ops->close(ops->user, markers);
  return result;
}

enum cache_lock_result cache_lock_try(struct cache_lock *lock, const struct file_ops *ops, int folder) {
  const int done = try_range(lock, ops, folder);
  if (done == 0) return CACHE_LOCK_TAKEN;
  if (done == -EAGAIN || done == -EINTR || done == -ESTALE) return CACHE_LOCK_BUSY;
  const bool no_locks = done == -ENOLCK || done == -EOPNOTSUPP || done == -ENOSYS || done == -EINVAL;
  return no_locks ? try_marker(lock, ops, folder) : CACHE_LOCK_UNAVAILABLE;
}

/* Remove the marker if it is still the file `only`, and not one that another process has made since. */
static void remove_marker(struct cache_lock *lock, const struct file_ops *ops, int folder, ino_t only) {
  const int markers = open_markers(ops, folder);
  if (markers < 0) return;
  struct stat status;
  if (ops->stat_at(ops->user, markers, lock->marker, &status) == 0 && status.st_ino == only)
    (void)ops->unlink(ops->user, markers, lock->marker);
  (void)ops->close(ops->user, markers);
}

void cache_lock_release(struct cache_lock *lock, const struct file_ops *ops, int folder) {
  struct stat status;
  if (lock->file < 0) return;
  if (!lock->marked)
    /* Closing would not be enough, because a forked child may hold another descriptor of the same open file. */
    (void)ops->unlock(ops->user, lock->file, lock->offset, 1);
  else if (ops->stat(ops->user, lock->file, &status) == 0)
    remove_marker(lock, ops, folder, status.st_ino);
  (void)ops->close(ops->user, lock->file);
  lock->file = -1;
}

void cache_lock_give_up(struct cache_lock *lock, const struct file_ops *ops, int folder) {
  if (lock->awaited) remove_marker(lock, ops, folder, lock->awaited);
}
