/* The cache's calls to Linux. Each returns what the system call does, with -errno in place of -1, so that an error
 * travels as a value and not in a thread-local. Tests replace the table by one whose calls fail on demand.
 *
 * Paths below a cache folder are opened by openat2() with RESOLVE_NO_SYMLINKS and RESOLVE_BENEATH, so that a
 * symbolic link planted in the folder leads nowhere. Kernels and sandboxes without openat2() get the same result
 * folder by folder. Reads and writes name their offset, so threads that share a descriptor do not disturb each
 * other. The only state is a flag that openat2() is missing. */
#include "jit/cache/file_ops.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int result(int returned) {
  return returned < 0 ? -errno : returned;
}

static int system_open_path(void *user, const char *path, int flags, mode_t mode) {
  (void)user;
  return result(open(path, flags | O_CLOEXEC, mode));
}

static int system_stat_path(void *user, const char *path, struct stat *status) {
  (void)user;
  return result(stat(path, status));
}

static int system_real_path(void *user, const char *path, char *real) {
  (void)user;
  return realpath(path, real) ? 0 : -errno;
}

static int system_make_path(void *user, const char *path, mode_t mode) {
  (void)user;
  return result(mkdir(path, mode));
}

/* Open with one call that refuses links in the whole path. Some kernels and sandboxes lack openat2(). */
static int open_beneath(int folder, const char *path, int flags, mode_t mode) {
  struct open_how how = {0};
  how.flags = (unsigned)(flags | O_CLOEXEC);
  how.mode = flags & O_CREAT ? mode : 0;
  how.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH;
  return result((int)syscall(SYS_openat2, folder, path, &how, sizeof how));
}

/* Open without openat2(): each folder on the way is opened by itself, with O_NOFOLLOW, so that none can be a link. */
static int open_by_steps(int folder, const char *path, int flags, mode_t mode) {
  int at = folder;
  const char *slash;
  while ((slash = strchr(path, '/'))) {
    char name[NAME_MAX + 1];
    const size_t bytes = (size_t)(slash - path);
    int next = -ENAMETOOLONG;
    if (bytes < sizeof name) {
      memcpy(name, path, bytes);
      name[bytes] = '\0';
      next = result(openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    }
    if (at != folder) close(at);
    if (next < 0) return next;
    at = next;
    path = slash + 1;
  }
  const int file = result(openat(at, path, flags | O_NOFOLLOW | O_CLOEXEC, mode));
  if (at != folder) close(at);
  return file;
}

static int system_open(void *user, int folder, const char *path, int flags, mode_t mode) {
  static atomic_bool stepwise;
  (void)user;
  if (!atomic_load_explicit(&stepwise, memory_order_relaxed)) {
    const int file = open_beneath(folder, path, flags, mode);
    if (file != -ENOSYS && file != -EPERM && file != -EINVAL) return file;
    atomic_store_explicit(&stepwise, file == -ENOSYS, memory_order_relaxed);
  }
  return open_by_steps(folder, path, flags, mode);
}

/* close() is not repeated on EINTR, because Linux has closed the descriptor by then and another thread may own its
 * number.
 */
static int system_close(void *user, int file) {
  (void)user;
  return result(close(file));
}

static ssize_t system_read(void *user, int file, void *data, size_t bytes, off_t at) {
  (void)user;
  ssize_t done;
  do
    done = pread(file, data, bytes, at);
  while (done < 0 && errno == EINTR);
  return done < 0 ? -errno : done;
}

static ssize_t system_write(void *user, int file, const void *data, size_t bytes, off_t at) {
  (void)user;
  ssize_t done;
  do
    done = pwrite(file, data, bytes, at);
  while (done < 0 && errno == EINTR);
  return done < 0 ? -errno : done;
}

static int system_truncate(void *user, int file, off_t bytes) {
  (void)user;
  return result(ftruncate(file, bytes));
}

static int system_sync(void *user, int file) {
  (void)user;
  int done;
  do
    done = result(fsync(file));
  while (done == -EINTR);
  return done;
}

static int system_stat(void *user, int file, struct stat *status) {
  (void)user;
  return result(fstat(file, status));
}

static int system_stat_at(void *user, int folder, const char *name, struct stat *status) {
  (void)user;
  return result(fstatat(folder, name, status, AT_SYMLINK_NOFOLLOW));
}

static int system_touch(void *user, int file) {
  (void)user;
  struct timespec times[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
  /* UTIME_NOW is as coarse as the kernel's tick, in which several entries can be used. */
  if (clock_gettime(CLOCK_REALTIME, &times[1]) < 0) times[1].tv_nsec = UTIME_NOW;
  return result(futimens(file, times));
}

static int system_rename(void *user, int from_folder, const char *from, int to_folder, const char *to) {
  (void)user;
  return result(renameat(from_folder, from, to_folder, to));
}

static int system_unlink(void *user, int folder, const char *name) {
  (void)user;
  return result(unlinkat(folder, name, 0));
}

static int system_make_folder(void *user, int folder, const char *name, mode_t mode) {
  (void)user;
  return result(mkdirat(folder, name, mode));
}

static int system_list_open(void *user, int folder, const char *path, struct file_list **list) {
  const int file = system_open(user, folder, path, O_RDONLY | O_DIRECTORY, 0);
  if (file < 0) return file;
  DIR *open = fdopendir(file);
  *list = (struct file_list *)open;
  if (open) return 0;
  const int failure = -errno;
  close(file);
  return failure;
}

static int system_list_next(void *user, struct file_list *list, const char **name) {
  (void)user;
  for (;;) {
    errno = 0;
    const struct dirent *found = readdir((DIR *)list);
    if (!found) return -errno;
    if (!strcmp(found->d_name, ".") || !strcmp(found->d_name, "..")) continue;
    *name = found->d_name;
    return 1;
  }
}

static void system_list_close(void *user, struct file_list *list) {
  (void)user;
  closedir((DIR *)list);
}

/* Take or drop an open-file-description lock. Unlike flock() it covers a range, and unlike a POSIX lock it is not
 * dropped when another descriptor of the file is closed in this process. Over NFS the server keeps it. */
static int set_lock(int file, short type, off_t at, off_t bytes) {
  struct flock range = {0};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = at;
  range.l_len = bytes;
  const int done = result(fcntl(file, F_OFD_SETLK, &range));
  return done == -EACCES ? -EAGAIN : done;
}

static int system_lock(void *user, int file, off_t at, off_t bytes) {
  (void)user;
  return set_lock(file, F_WRLCK, at, bytes);
}

static int system_unlock(void *user, int file, off_t at, off_t bytes) {
  (void)user;
  return set_lock(file, F_UNLCK, at, bytes);
}

static int system_random(void *user, void *data, size_t bytes) {
  (void)user;
  ssize_t got;
  do
    got = getrandom(data, bytes, 0);
  while (got < 0 && errno == EINTR);
  if (got < 0) return -errno;
  return (size_t)got == bytes ? 0 : -EIO;
}

static int64_t nanoseconds(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t system_monotonic_ns(void *user) {
  (void)user;
  return nanoseconds(CLOCK_MONOTONIC);
}

static int64_t system_wall_s(void *user) {
  (void)user;
  return nanoseconds(CLOCK_REALTIME) / 1000000000;
}

static void system_sleep_ns(void *user, int64_t ns) {
  (void)user;
  const struct timespec span = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
  nanosleep(&span, NULL);
}

static uid_t system_user_id(void *user) {
  (void)user;
  return geteuid();
}

static const char *system_environment(void *user, const char *name) {
  (void)user;
  if (getauxval(AT_SECURE) || getuid() != geteuid() || getgid() != getegid()) return NULL;
  const char *value = getenv(name);
  return value && *value ? value : NULL;
}

const struct file_ops *file_ops_system(void) {
  static const struct file_ops system_ops = {
      .open_path = system_open_path,
      .stat_path = system_stat_path,
      .real_path = system_real_path,
      .make_path = system_make_path,
      .open = system_open,
      .close = system_close,
      .read = system_read,
      .write = system_write,
      .truncate = system_truncate,
      .sync = system_sync,
      .stat = system_stat,
      .stat_at = system_stat_at,
      .touch = system_touch,
      .rename = system_rename,
      .unlink = system_unlink,
      .make_folder = system_make_folder,
      .list_open = system_list_open,
      .list_next = system_list_next,
      .list_close = system_list_close,
      .lock = system_lock,
      .unlock = system_unlock,
      .random = system_random,
      .monotonic_ns = system_monotonic_ns,
      .wall_s = system_wall_s,
      .sleep_ns = system_sleep_ns,
      .user_id = system_user_id,
      .environment = system_environment,
  };
  return &system_ops;
}

int file_read_all(const struct file_ops *ops, int file, void *data, size_t bytes, off_t at) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t got = ops->read(ops->user, file, (char *)data + done, bytes - done, at + (off_t)done);
    if (got <= 0) return got < 0 ? (int)got : -ENODATA;
    done += (size_t)got;
  }
  return 0;
}

int file_write_all(const struct file_ops *ops, int file, const void *data, size_t bytes, off_t at) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t put = ops->write(ops->user, file, (const char *)data + done, bytes - done, at + (off_t)done);
    if (put <= 0) return put < 0 ? (int)put : -EIO;
    done += (size_t)put;
  }
  return 0;
}
