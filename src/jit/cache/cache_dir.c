/* Finding the cache folders and deciding whether they may be used.
 *
 * The user folder is made, with mode 0700, if it is missing. It is refused if another user owns it or can write to
 * it, because cubins from it are run with this user's rights. The site folder is never made; it may belong to an
 * administrator, but must not be writable by everybody. The environment is not read in a set-user-id process
 * (file_ops.c).
 *
 * A folder is opened once and used by its descriptor afterwards, so that what was checked is what is used even if
 * the path is renamed. Called while a builder is made, on one thread. */
#include "jit/cache/cache_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

static const char *environment(const struct file_ops *ops, bool allowed, const char *name) {
  const char *value = allowed ? ops->environment(ops->user, name) : NULL;
  return value && *value ? value : NULL;
}

/* The XDG base directory specification says that a relative path in its variables is invalid and to be ignored. */
static const char *absolute(const char *path) {
  return path && path[0] == '/' ? path : NULL;
}

static kjit_status choose_user_path(char **path, const struct file_ops *ops, const struct mem *mem, const char *option,
                                    bool kjit_environment, kjit_error *error) {
  const char *given = option ? option : environment(ops, kjit_environment, "KJIT_CACHE_DIR");
  const char *xdg = absolute(environment(ops, 1, "XDG_CACHE_HOME"));
  const char *home = absolute(environment(ops, 1, "HOME"));
  struct text text;
  text_init(&text, mem, CACHE_DIR_MAX_BYTES);
  if (given)
    text_append(&text, given);
  else if (xdg)
    text_appendf(&text, "%s/kjit", xdg);
  else if (home)
    text_appendf(&text, "%s/.cache/kjit", home);
  else
    return error_set(error, KJIT_ERR_NOT_FOUND,
                     "cache folder: neither cache_dir, KJIT_CACHE_DIR, XDG_CACHE_HOME nor HOME names one");
  *path = text_take(&text);
  if (*path) return KJIT_OK;
  text_finish(&text);
  return error_set(error, KJIT_ERR_IO, "cache folder: its path is longer than 4096 bytes, or memory ran out");
}

/* Like `mkdir -p` with mode 0700. Only a failure at the last component counts, because the parents may exist in places
 * where this user may not even look. */
static int make_with_parents(const struct file_ops *ops, char *path) {
  for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    (void)ops->make_path(ops->user, path, 0700);
    *slash = '/';
  }
  const int made = ops->make_path(ops->user, path, 0700);
  return made == -EEXIST ? 0 : made;
}

static kjit_status refuse(kjit_error *error, const char *path, const char *rule) {
  return error_set(error, KJIT_ERR_UNTRUSTED, "cache folder %s is not used: %s", path, rule);
}

static kjit_status failed(kjit_error *error, const char *path, int code) {
  return error_set_cause(error, KJIT_ERR_IO, KJIT_CAUSE_ERRNO, -code, "cache folder %s is not used: %s", path,
                         strerror(-code));
}

static kjit_status check_user(const struct cache_dir *dir, const struct file_ops *ops, kjit_error *error) {
  struct stat status;
  const int code = ops->stat(ops->user, dir->folder, &status);
  if (code < 0) return failed(error, dir->path, code);
  if (status.st_uid != ops->user_id(ops->user)) return refuse(error, dir->path, "it belongs to another user");
  if (status.st_mode & (S_IWGRP | S_IWOTH)) return refuse(error, dir->path, "other users can write to it");
  return KJIT_OK;
}

kjit_status cache_dir_open_user(struct cache_dir *dir, const struct file_ops *ops, const struct mem *mem,
                                const char *option, bool kjit_environment, bool writable, kjit_error *error) {
  *dir = (struct cache_dir){-1, NULL};
  const kjit_status chosen = choose_user_path(&dir->path, ops, mem, option, kjit_environment, error);
  if (chosen != KJIT_OK) return chosen;
  const int flags = O_RDONLY | O_DIRECTORY;
  dir->folder = ops->open_path(ops->user, dir->path, flags, 0);
  if (dir->folder == -ENOENT && writable) {
    const int made = make_with_parents(ops, dir->path);
    dir->folder = made < 0 ? made : ops->open_path(ops->user, dir->path, flags, 0);
  }
  return dir->folder < 0 ? failed(error, dir->path, dir->folder) : check_user(dir, ops, error);
}

kjit_status cache_dir_open_site(struct cache_dir *dir, const struct file_ops *ops, const struct mem *mem,
                                const char *option, bool kjit_environment, kjit_error *error) {
  *dir = (struct cache_dir){-1, NULL};
  const char *path = option ? option : environment(ops, kjit_environment, "KJIT_CACHE_SITE");
  if (!path) return KJIT_ERR_NOT_FOUND;
  dir->path = mem_strdup(mem, path);
  if (!dir->path) return error_no_memory(error);
  dir->folder = ops->open_path(ops->user, dir->path, O_RDONLY | O_DIRECTORY, 0);
  if (dir->folder < 0) return failed(error, dir->path, dir->folder);
  struct stat status;
  const int code = ops->stat(ops->user, dir->folder, &status);
  if (code < 0) return failed(error, dir->path, code);
  /* The site folder may belong to another user (an administrator), but is refused if it is world-writable. */
  return status.st_mode & S_IWOTH ? refuse(error, dir->path, "everybody can write to it") : KJIT_OK;
}

void cache_dir_finish(struct cache_dir *dir, const struct file_ops *ops, const struct mem *mem) {
  if (dir->folder >= 0) (void)ops->close(ops->user, dir->folder);
  mem_free(mem, dir->path);
  *dir = (struct cache_dir){-1, NULL};
}
