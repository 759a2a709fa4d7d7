/* Whole files, read-only: mapped, copied or identified.
 *
 * A file is opened without blocking, then checked (a regular file, no larger than the caller's limit), then mapped
 * or read. The identity (device, inode, size, modification time) is that of the opened descriptor, so it belongs to
 * the bytes that were read even if the path names another file by now. A mapping shares its pages with the file: who
 * maps must expect that another process changes them, which bundle.c does and entries avoid by being read.
 *
 * No state is kept between calls; any thread may call. */
#include "base/files/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

static struct file_identity identity_of(const struct stat *info) {
  return (struct file_identity){(uint64_t)info->st_dev, (uint64_t)info->st_ino, (uint64_t)info->st_size, info->st_mtim};
}

static kjit_status io_error(kjit_error *error, const char *path) {
  const int number = errno;
  char words[128];
  const kjit_status status = number == ENOENT || number == ENOTDIR ? KJIT_ERR_NOT_FOUND : KJIT_ERR_IO;
  return error_set_cause(error, status, KJIT_CAUSE_ERRNO, number, "%s: %s", path,
                         strerror_r(number, words, sizeof words));
}

/* Open a file and check that it is a regular one within the limit. The descriptor, or -1 with *status set. */
static int open_checked(const char *path, size_t limit, struct stat *info, kjit_status *status, kjit_error *error) {
  /* O_NONBLOCK, because opening a FIFO that stands in the place of a file would otherwise wait for a writer. */
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  *status = KJIT_OK;
  if (fd < 0 || fstat(fd, info) != 0)
    *status = io_error(error, path);
  else if (!S_ISREG(info->st_mode))
    *status = error_set(error, KJIT_ERR_IO, "%s: not a regular file", path);
  else if ((uint64_t)info->st_size > limit)
    *status = error_set(error, KJIT_ERR_IO, "%s: %lld bytes; the limit is %zu", path, (long long)info->st_size, limit);
  if (*status == KJIT_OK) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

kjit_status file_map_open(struct file_map *map, const char *path, size_t limit, kjit_error *error) {
  *map = (struct file_map){0};
  struct stat info;
  kjit_status status;
  const int fd = open_checked(path, limit, &info, &status, error);
  if (fd < 0) return status;
  if (info.st_size > 0) {
    void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
      status = io_error(error, path);
    else
      map->data = data;
  }
  close(fd);
  if (status != KJIT_OK) return status;
  map->bytes = (size_t)info.st_size;
  map->identity = identity_of(&info);
  return KJIT_OK;
}

void file_map_close(struct file_map *map) {
  if (map->data) munmap((void *)(uintptr_t)map->data, map->bytes);
  *map = (struct file_map){0};
}

/* Read `*bytes` bytes and a NUL behind them. A file that shrinks meanwhile gives fewer bytes, one that grows is cut at
 * the size that it had when it was opened. */
static kjit_status read_bytes(int fd, const char *path, char *data, size_t *bytes, kjit_error *error) {
  size_t done = 0;
  while (done < *bytes) {
    const ssize_t got = read(fd, data + done, *bytes - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_error(error, path);
    if (got == 0) break;
    done += (size_t)got;
  }
  data[done] = '\0';
  *bytes = done;
  return KJIT_OK;
}

kjit_status file_read(const struct mem *mem, const char *path, size_t limit, char **data, size_t *bytes,
                      kjit_error *error) {
  *data = NULL;
  *bytes = 0;
  struct stat info;
  kjit_status status;
  const int fd = open_checked(path, limit, &info, &status, error);
  if (fd < 0) return status;
  size_t size = (size_t)info.st_size;
  char *text = mem_alloc(mem, size + 1);
  status = text ? read_bytes(fd, path, text, &size, error) : error_no_memory(error);
  close(fd);
  if (status != KJIT_OK) {
    mem_free(mem, text);
    return status;
  }
  *data = text;
  *bytes = size;
  return KJIT_OK;
}

bool file_identify(const char *path, struct file_identity *identity) {
  struct stat info;
  if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) return false;
  *identity = identity_of(&info);
  return true;
}

bool file_identity_equal(const struct file_identity *a, const struct file_identity *b) {
  return a->device == b->device && a->inode == b->inode && a->bytes == b->bytes &&
         a->modified.tv_sec == b->modified.tv_sec && a->modified.tv_nsec == b->modified.tv_nsec;
}

static int64_t nanoseconds(struct timespec time) {
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void read_stamp(int folder, const char *path, struct file_stamp *stamp) {
  struct stat info;
  *stamp = (struct file_stamp){0};
  if (fstatat(folder, path, &info, 0) != 0) return;
  const enum file_stamp_kind kind = S_ISREG(info.st_mode)   ? FILE_STAMP_FILE
                                    : S_ISDIR(info.st_mode) ? FILE_STAMP_FOLDER
                                                            : FILE_STAMP_OTHER;
  *stamp = (struct file_stamp){(uint64_t)info.st_dev,     (uint64_t)info.st_ino,     (uint64_t)info.st_size,
                               nanoseconds(info.st_mtim), nanoseconds(info.st_ctim), kind};
}

void file_stamp_read(const char *path, struct file_stamp *stamp) {
  read_stamp(AT_FDCWD, path, stamp);
}

void file_folders_open(struct file_folders *folders) {
  for (size_t i = 0; i < FILE_FOLDERS_MOST; i++)
    folders->table[i] = (struct file_folder){NULL, 0, -1};
}

void file_folders_close(struct file_folders *folders) {
  for (size_t i = 0; i < FILE_FOLDERS_MOST; i++)
    if (folders->table[i].file >= 0) (void)close(folders->table[i].file);
}

/* The folder of the path's first `bytes` bytes, opened; -1 when it cannot be. */
static int find_folder(struct file_folders *folders, const char *path, size_t bytes) {
  char name[FILE_FOLDER_BYTES];
  uint32_t hash = 0;
  for (size_t i = 0; i < bytes; i++)
    hash = hash * 31 + (unsigned char)path[i];
  struct file_folder *const at = &folders->table[hash % FILE_FOLDERS_MOST];
  if (at->path && at->bytes == bytes && !memcmp(at->path, path, bytes)) return at->file;
  if (at->file >= 0) (void)close(at->file);
  memcpy(name, path, bytes);
  name[bytes] = '\0';
  *at = (struct file_folder){path, bytes, open(name, O_PATH | O_DIRECTORY | O_CLOEXEC)};
  return at->file;
}

void file_stamp_read_in(struct file_folders *folders, const char *path, struct file_stamp *stamp) {
  const char *slash = strrchr(path, '/');
  const size_t bytes = slash ? (size_t)(slash - path) : 0;
  const int folder = bytes && slash[1] && bytes < FILE_FOLDER_BYTES ? find_folder(folders, path, bytes) : -1;
  if (folder >= 0)
    read_stamp(folder, slash + 1, stamp);
  else
    file_stamp_read(path, stamp);
}

bool file_stamp_equal(const struct file_stamp *a, const struct file_stamp *b) {
  return a->device == b->device && a->inode == b->inode && a->bytes == b->bytes && a->modified_ns == b->modified_ns &&
         a->changed_ns == b->changed_ns && a->kind == b->kind;
}
