/* Temporary files: make one under a random name in "tmp" or beside what it becomes, lock it, write it, make it durable,
 * rename it into place; and the sweep that removes those of killed writers.
 *
 * A sweep must not remove a file that somebody is writing. The writer holds a lock on it, which the kernel frees
 * when the writer dies, so a file whose lock is free is abandoned. Where locks do not work, a file is taken for
 * abandoned when it is a minute old. A file that is young and empty is left alone in any case, because its writer
 * may be about to lock it; trying its lock would even get in that writer's way.
 *
 * A struct temp_file belongs to one thread. Threads and processes may create and sweep at the same time. */
#include "jit/cache/temp_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define TEMP_FOLDER "tmp"

/* Random bytes of a name, each two digits. */
#define NAME_BYTES 8

/* A second and a third try are for a random name that exists already, and for a writer that was stopped for a minute
 * between making its file and locking it and so lost it to a sweep. More failures have another cause. */
#define CREATE_TRIES 3

static int make_folder(const struct file_ops *ops, int parent, const char *name) {
  const int made = ops->make_folder(ops->user, parent, name, 0700);
  if (made == -EEXIST) return 0;
  /* The parent is synced, because after a power cut the new folder would otherwise be gone with everything in it. */
  return made < 0 ? made : ops->sync(ops->user, parent);
}

int folder_open_or_make(const struct file_ops *ops, int root, const char *path) {
  const int flags = O_RDONLY | O_DIRECTORY;
  const int open = ops->open(ops->user, root, path, flags, 0);
  if (open != -ENOENT) return open;
  char parent_path[64];
  const char *slash = strchr(path, '/');
  int parent = root, made = 0;
  if (slash) {
    if ((size_t)(slash - path) >= sizeof parent_path) return -ENAMETOOLONG;
    snprintf(parent_path, sizeof parent_path, "%.*s", (int)(slash - path), path);
    made = make_folder(ops, root, parent_path);
    parent = made < 0 ? made : ops->open(ops->user, root, parent_path, flags, 0);
    if (parent < 0) return parent;
  }
  made = make_folder(ops, parent, slash ? slash + 1 : path);
  if (parent != root) (void)ops->close(ops->user, parent);
  return made < 0 ? made : ops->open(ops->user, root, path, flags, 0);
}

/* How a file is made: what its name begins with, and its rights before the umask. */
struct making {
  const char *prefix;
  mode_t mode;
};

static const struct making in_cache = {"", 0600}, beside = {".", 0666};

static int choose_name(struct temp_file *temp, const struct file_ops *ops, const struct making *making) {
  uint8_t random[NAME_BYTES];
  const int done = ops->random(ops->user, random, sizeof random);
  if (done < 0) return done;
  int at = snprintf(temp->name, sizeof temp->name, "%s", making->prefix);
  for (size_t i = 0; i < sizeof random; i++)
    at += snprintf(temp->name + at, sizeof temp->name - (size_t)at, "%02x", random[i]);
  return 0;
}

/* Is it a name that choose_name() gives a file beside others? */
static bool is_beside(const char *name) {
  return *name == '.' && strlen(name) == 1 + 2 * NAME_BYTES && strspn(name + 1, "0123456789abcdef") == 2 * NAME_BYTES;
}

/* Lock the new file, and make sure that no sweep removed it before. If the file system has no locks, the sweep goes by
 * the file's age, so that is no error. */
static int claim(struct temp_file *temp, const struct file_ops *ops) {
  struct stat status;
  const int locked = ops->lock(ops->user, temp->file, 0, 1);
  if (locked == -EAGAIN) return -EAGAIN;
  const int known = ops->stat(ops->user, temp->file, &status);
  if (known < 0) return known;
  return status.st_nlink ? 0 : -EAGAIN;
}

static int create_once(struct temp_file *temp, const struct file_ops *ops, const struct making *making) {
  int done = choose_name(temp, ops, making);
  if (done < 0) return done;
  temp->file = ops->open(ops->user, temp->folder, temp->name, O_RDWR | O_CREAT | O_EXCL, making->mode);
  if (temp->file < 0) {
    temp->name[0] = '\0';
    return temp->file == -EEXIST ? -EAGAIN : temp->file;
  }
  done = claim(temp, ops);
  if (done == -EAGAIN) {
    (void)ops->unlink(ops->user, temp->folder, temp->name);
    (void)ops->close(ops->user, temp->file);
    temp->file = -1;
    temp->name[0] = '\0';
  }
  return done;
}

static int create(struct temp_file *temp, const struct file_ops *ops, int folder, const struct making *making) {
  *temp = (struct temp_file){folder, -1, ""};
  int done = folder < 0 ? folder : -EAGAIN;
  for (int i = 0; i < CREATE_TRIES && done == -EAGAIN; i++)
    done = create_once(temp, ops, making);
  return done;
}

int temp_file_create(struct temp_file *temp, const struct file_ops *ops, int root) {
  return create(temp, ops, folder_open_or_make(ops, root, TEMP_FOLDER), &in_cache);
}

/* The folder is opened once more, because temp_file_finish() closes the descriptor. */
int temp_file_create_beside(struct temp_file *temp, const struct file_ops *ops, int folder) {
  return create(temp, ops, ops->open(ops->user, folder, ".", O_RDONLY | O_DIRECTORY, 0), &beside);
}

int temp_file_write(struct temp_file *temp, const struct file_ops *ops, const void *data, size_t bytes) {
  const int done = file_write_all(ops, temp->file, data, bytes, 0);
  (void)ops->touch(ops->user, temp->file); /* the first use, with a finer time than the system's */
  return done < 0 ? done : ops->sync(ops->user, temp->file);
}

int temp_file_publish(struct temp_file *temp, const struct file_ops *ops, int folder, const char *name) {
  const int done = ops->rename(ops->user, temp->folder, temp->name, folder, name);
  if (done == 0) temp->name[0] = '\0';
  return done;
}

void temp_file_finish(struct temp_file *temp, const struct file_ops *ops) {
  if (temp->name[0]) (void)ops->unlink(ops->user, temp->folder, temp->name);
  if (temp->file >= 0) (void)ops->close(ops->user, temp->file);
  if (temp->folder >= 0) (void)ops->close(ops->user, temp->folder);
  *temp = (struct temp_file){-1, -1, ""};
}

/* Is the file younger than a minute? A time up to a minute in the future is young too, because a file server's clock
 * may be ahead. */
static bool is_young(const struct file_ops *ops, const struct stat *status) {
  const int64_t age_s = ops->wall_s(ops->user) - status->st_mtime;
  return age_s < TEMP_FILE_ORPHAN_AGE_S && age_s > -TEMP_FILE_ORPHAN_AGE_S;
}

/* Is the file abandoned: is its lock free or, without working locks, is it old? A young and empty file is not, because
 * its writer may be about to lock it. */
static bool is_orphan(const struct temp_sweep *sweep, const struct file_ops *ops, int folder, const char *name,
                      int file) {
  struct stat opened, named;
  if (ops->stat(ops->user, file, &opened) < 0) return false;
  const bool young = is_young(ops, &opened);
  if (young && (sweep->spare_young || !opened.st_size)) return false;
  const int locked = ops->lock(ops->user, file, 0, 1);
  if (locked == -EAGAIN || (locked < 0 && young)) return false;
  /* The name must still lead to this file: it may have been published since the folder was listed. */
  return ops->stat_at(ops->user, folder, name, &named) == 0 && named.st_ino == opened.st_ino;
}

static void sweep_one(struct temp_sweep *sweep, const struct file_ops *ops, int folder, const char *name) {
  const int file = ops->open(ops->user, folder, name, O_RDWR | O_NONBLOCK, 0);
  /* A symbolic link was not made by kjit. It is not followed (-ELOOP) and counts as abandoned. */
  const bool orphan = file == -ELOOP || (file >= 0 && is_orphan(sweep, ops, folder, name, file));
  sweep->found += orphan;
  if (orphan && sweep->remove) (void)ops->unlink(ops->user, folder, name);
  if (file >= 0) (void)ops->close(ops->user, file);
}

/* Every name of the folder; with `only`, those that it holds true for. */
static int sweep_folder(struct temp_sweep *sweep, const struct file_ops *ops, int folder, bool (*only)(const char *)) {
  struct file_list *list = NULL;
  const char *name;
  int done = ops->list_open(ops->user, folder, ".", &list);
  while (done >= 0 && (done = ops->list_next(ops->user, list, &name)) > 0)
    if (!only || only(name)) sweep_one(sweep, ops, folder, name);
  if (list) ops->list_close(ops->user, list);
  return done;
}

int temp_file_sweep(struct temp_sweep *sweep, const struct file_ops *ops, int root) {
  const int folder = ops->open(ops->user, root, TEMP_FOLDER, O_RDONLY | O_DIRECTORY, 0);
  if (folder < 0) return folder == -ENOENT ? 0 : folder;
  const int done = sweep_folder(sweep, ops, folder, NULL);
  (void)ops->close(ops->user, folder);
  return done;
}

int temp_file_sweep_beside(struct temp_sweep *sweep, const struct file_ops *ops, int folder) {
  return sweep_folder(sweep, ops, folder, is_beside);
}
