/* Every call of the cache to the operating system, as a table: a test passes one that fails, the library
 * file_ops_system(). Results are those of the call, with -errno in place of -1 and errno. A `path` inside a cache
 * folder is relative to the folder's descriptor, a `name` has no "/" in it, and no symbolic link is followed in either.
 */
#ifndef KJIT_JIT_CACHE_FILE_OPS_H
#define KJIT_JIT_CACHE_FILE_OPS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

struct file_list; /* an open listing of a folder */

struct file_ops {
  void *user; /* passed back */

  /* The one path that may lead through symbolic links: the way to a cache folder, or to an export. `real` becomes the
   * path without links, in PATH_MAX bytes. */
  int (*open_path)(void *user, const char *path, int flags, mode_t mode);
  int (*stat_path)(void *user, const char *path, struct stat *status);
  int (*real_path)(void *user, const char *path, char *real);
  int (*make_path)(void *user, const char *path, mode_t mode);

  int (*open)(void *user, int folder, const char *path, int flags, mode_t mode);
  int (*close)(void *user, int file);
  ssize_t (*read)(void *user, int file, void *data, size_t bytes, off_t at);
  ssize_t (*write)(void *user, int file, const void *data, size_t bytes, off_t at);
  int (*truncate)(void *user, int file, off_t bytes);
  int (*sync)(void *user, int file);
  int (*stat)(void *user, int file, struct stat *status);
  int (*stat_at)(void *user, int folder, const char *name, struct stat *status);
  int (*touch)(void *user, int file); /* modification time = now, to the nanosecond, by this machine's clock */
  int (*rename)(void *user, int from_folder, const char *from, int to_folder, const char *to);
  int (*unlink)(void *user, int folder, const char *name);
  int (*make_folder)(void *user, int folder, const char *name, mode_t mode);

  /* Names of a folder, without "." and "..". next: 1 with a name, 0 at the end, or -errno. */
  int (*list_open)(void *user, int folder, const char *path, struct file_list **list);
  int (*list_next)(void *user, struct file_list *list, const char **name);
  void (*list_close)(void *user, struct file_list *list);

  /* Take or drop an exclusive lock on `bytes` bytes from `at`, owned by the open file and freed by the kernel with it.
   * Does not wait: -EAGAIN when another holds it. */
  int (*lock)(void *user, int file, off_t at, off_t bytes);
  int (*unlock)(void *user, int file, off_t at, off_t bytes);

  int (*random)(void *user, void *data, size_t bytes);
  int64_t (*monotonic_ns)(void *user);
  int64_t (*wall_s)(void *user);
  void (*sleep_ns)(void *user, int64_t ns);
  uid_t (*user_id)(void *user);                             /* effective */
  const char *(*environment)(void *user, const char *name); /* NULL in a set-user-id process */
};

const struct file_ops *file_ops_system(void);

/* All of it, however many calls it takes. 0 or -errno; -ENODATA when the file ends before. */
int file_read_all(const struct file_ops *ops, int file, void *data, size_t bytes, off_t at);
int file_write_all(const struct file_ops *ops, int file, const void *data, size_t bytes, off_t at);

#endif
