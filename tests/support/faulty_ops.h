/* The system's file calls, of which a test can make any fail: the n-th, or all of one kind. It also counts the calls
 * and the descriptors that are open, so that a test sees what was left open after a failure. */
#ifndef KJIT_TESTS_SUPPORT_FAULTY_OPS_H
#define KJIT_TESTS_SUPPORT_FAULTY_OPS_H

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "jit/cache/file_ops.h"

enum faulty_call {
  FAULTY_OPEN_PATH,
  FAULTY_STAT_PATH,
  FAULTY_REAL_PATH,
  FAULTY_MAKE_PATH,
  FAULTY_OPEN,
  FAULTY_READ,
  FAULTY_WRITE,
  FAULTY_SYNC,
  FAULTY_STAT,
  FAULTY_STAT_AT,
  FAULTY_TOUCH,
  FAULTY_RENAME,
  FAULTY_UNLINK,
  FAULTY_MAKE_FOLDER,
  FAULTY_LIST_OPEN,
  FAULTY_LIST_NEXT,
  FAULTY_LOCK,
  FAULTY_RANDOM,
  FAULTY_CALLS
};

struct faulty_ops {
  struct file_ops ops;      /* what the builder gets */
  atomic_long calls;        /* so far, of the kinds that can fail */
  atomic_long fail_at;      /* index of the call to fail, -1: none */
  atomic_int code;          /* errno of a failure */
  atomic_int kind;          /* all calls of this kind fail, FAULTY_CALLS: none */
  atomic_long open;         /* descriptors and listings not closed */
  atomic_long short_writes; /* write at most this many bytes at a time; 0: no limit */
};

static inline int faulty_fails(struct faulty_ops *faulty, enum faulty_call call) {
  const long index = atomic_fetch_add(&faulty->calls, 1);
  return index == atomic_load(&faulty->fail_at) || (int)call == atomic_load(&faulty->kind);
}

#define FAULTY_RESULT(call, expression)                                                                                \
  struct faulty_ops *faulty = user;                                                                                    \
  if (faulty_fails(faulty, call)) return -atomic_load(&faulty->code);                                                  \
  return expression

static inline int faulty_opened(struct faulty_ops *faulty, int file) {
  if (file >= 0) atomic_fetch_add(&faulty->open, 1);
  return file;
}

static inline int faulty_open_path(void *user, const char *path, int flags, mode_t mode) {
  FAULTY_RESULT(FAULTY_OPEN_PATH, faulty_opened(faulty, file_ops_system()->open_path(NULL, path, flags, mode)));
}
static inline int faulty_stat_path(void *user, const char *path, struct stat *status) {
  FAULTY_RESULT(FAULTY_STAT_PATH, file_ops_system()->stat_path(NULL, path, status));
}
static inline int faulty_real_path(void *user, const char *path, char *real) {
  FAULTY_RESULT(FAULTY_REAL_PATH, file_ops_system()->real_path(NULL, path, real));
}
static inline int faulty_make_path(void *user, const char *path, mode_t mode) {
  FAULTY_RESULT(FAULTY_MAKE_PATH, file_ops_system()->make_path(NULL, path, mode));
}
static inline int faulty_open(void *user, int folder, const char *path, int flags, mode_t mode) {
  FAULTY_RESULT(FAULTY_OPEN, faulty_opened(faulty, file_ops_system()->open(NULL, folder, path, flags, mode)));
}
static inline int faulty_close(void *user, int file) {
  atomic_fetch_sub(&((struct faulty_ops *)user)->open, 1);
  return file_ops_system()->close(NULL, file);
}
static inline ssize_t faulty_read(void *user, int file, void *data, size_t bytes, off_t at) {
  FAULTY_RESULT(FAULTY_READ, file_ops_system()->read(NULL, file, data, bytes, at));
}
static inline ssize_t faulty_write(void *user, int file, const void *data, size_t bytes, off_t at) {
  const size_t limit = (size_t)atomic_load(&((struct faulty_ops *)user)->short_writes);
  if (limit && bytes > limit) bytes = limit;
  FAULTY_RESULT(FAULTY_WRITE, file_ops_system()->write(NULL, file, data, bytes, at));
}
static inline int faulty_sync(void *user, int file) {
  FAULTY_RESULT(FAULTY_SYNC, file_ops_system()->sync(NULL, file));
}
static inline int faulty_stat(void *user, int file, struct stat *status) {
  FAULTY_RESULT(FAULTY_STAT, file_ops_system()->stat(NULL, file, status));
}
static inline int faulty_stat_at(void *user, int folder, const char *name, struct stat *status) {
  FAULTY_RESULT(FAULTY_STAT_AT, file_ops_system()->stat_at(NULL, folder, name, status));
}
static inline int faulty_touch(void *user, int file) {
  FAULTY_RESULT(FAULTY_TOUCH, file_ops_system()->touch(NULL, file));
}
static inline int faulty_rename(void *user, int from_folder, const char *from, int to_folder, const char *to) {
  FAULTY_RESULT(FAULTY_RENAME, file_ops_system()->rename(NULL, from_folder, from, to_folder, to));
}
static inline int faulty_unlink(void *user, int folder, const char *name) {
  FAULTY_RESULT(FAULTY_UNLINK, file_ops_system()->unlink(NULL, folder, name));
}
static inline int faulty_make_folder(void *user, int folder, const char *name, mode_t mode) {
  FAULTY_RESULT(FAULTY_MAKE_FOLDER, file_ops_system()->make_folder(NULL, folder, name, mode));
}
static inline int faulty_list_open(void *user, int folder, const char *path, struct file_list **list) {
  struct faulty_ops *faulty = user;
  if (faulty_fails(faulty, FAULTY_LIST_OPEN)) return -atomic_load(&faulty->code);
  const int done = file_ops_system()->list_open(NULL, folder, path, list);
  if (done == 0) atomic_fetch_add(&faulty->open, 1);
  return done;
}
static inline int faulty_list_next(void *user, struct file_list *list, const char **name) {
  FAULTY_RESULT(FAULTY_LIST_NEXT, file_ops_system()->list_next(NULL, list, name));
}
static inline void faulty_list_close(void *user, struct file_list *list) {
  atomic_fetch_sub(&((struct faulty_ops *)user)->open, 1);
  file_ops_system()->list_close(NULL, list);
}
static inline int faulty_lock(void *user, int file, off_t at, off_t bytes) {
  FAULTY_RESULT(FAULTY_LOCK, file_ops_system()->lock(NULL, file, at, bytes));
}
static inline int faulty_random(void *user, void *data, size_t bytes) {
  FAULTY_RESULT(FAULTY_RANDOM, file_ops_system()->random(NULL, data, bytes));
}

/* Prepare a table in which no call fails until a test sets fail_at or kind. */
static inline void faulty_ops_init(struct faulty_ops *faulty) {
  faulty->ops = *file_ops_system();
  faulty->ops.user = faulty;
  faulty->ops.open_path = faulty_open_path;
  faulty->ops.stat_path = faulty_stat_path;
  faulty->ops.real_path = faulty_real_path;
  faulty->ops.make_path = faulty_make_path;
  faulty->ops.open = faulty_open;
  faulty->ops.close = faulty_close;
  faulty->ops.read = faulty_read;
  faulty->ops.write = faulty_write;
  faulty->ops.sync = faulty_sync;
  faulty->ops.stat = faulty_stat;
  faulty->ops.stat_at = faulty_stat_at;
  faulty->ops.touch = faulty_touch;
  faulty->ops.rename = faulty_rename;
  faulty->ops.unlink = faulty_unlink;
  faulty->ops.make_folder = faulty_make_folder;
  faulty->ops.list_open = faulty_list_open;
  faulty->ops.list_next = faulty_list_next;
  faulty->ops.list_close = faulty_list_close;
  faulty->ops.lock = faulty_lock;
  faulty->ops.random = faulty_random;
  atomic_store(&faulty->calls, 0);
  atomic_store(&faulty->fail_at, -1);
  atomic_store(&faulty->code, EIO);
  atomic_store(&faulty->kind, FAULTY_CALLS);
  atomic_store(&faulty->open, 0);
  atomic_store(&faulty->short_writes, 0);
}

#endif
