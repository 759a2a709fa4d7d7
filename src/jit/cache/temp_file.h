/* A file that becomes visible whole or not at all.
 *
 * Life cycle: temp_file_create() makes and locks it in a cache's "tmp", or temp_file_create_beside() in a folder that
 * has no "tmp"; temp_file_write() fills it and makes it durable; temp_file_publish() renames it into place;
 * temp_file_finish() closes it and, if it was not published, removes it.
 *
 * The writer locks the file before it writes the first byte, so that a sweep can tell a file that is being written from
 * one that a killed writer left. */
#ifndef KJIT_JIT_CACHE_TEMP_FILE_H
#define KJIT_JIT_CACHE_TEMP_FILE_H

#include <stdbool.h>

#include "jit/cache/file_ops.h"

struct temp_file {
  int folder, file; /* descriptors of its folder and of the file; -1 when closed */
  char name[33];    /* "" when there is nothing to remove */
};

/* Functions with an int result: 0, or -errno. `root` is the cache folder. Finish it in any case. */
int temp_file_create(struct temp_file *temp, const struct file_ops *ops, int root);

/* In `folder` itself, under "." and 16 hexadecimal digits, which no finished file there may be named. It gets the
 * rights that the umask leaves, because such a folder is not its writer's alone. */
int temp_file_create_beside(struct temp_file *temp, const struct file_ops *ops, int folder);
int temp_file_write(struct temp_file *temp, const struct file_ops *ops, const void *data, size_t bytes); /* and sync */
int temp_file_publish(struct temp_file *temp, const struct file_ops *ops, int folder, const char *name);
void temp_file_finish(struct temp_file *temp, const struct file_ops *ops); /* removes what was not published */

/* Where a writer's lock does not reach, as between machines on some mounts, a file of this age is taken for abandoned,
 * because no writer needs a minute for one file. */
#define TEMP_FILE_ORPHAN_AGE_S 60

/* A sweep of "tmp": what to do with abandoned files, and how many there were. */
struct temp_sweep {
  bool spare_young; /* leave files below that age alone, even if their lock is free */
  bool remove;      /* remove abandoned files; otherwise only count them */
  uint64_t found;
};
int temp_file_sweep(struct temp_sweep *sweep, const struct file_ops *ops, int root);

/* The same for the files of temp_file_create_beside(); all other names of the folder are left alone. */
int temp_file_sweep_beside(struct temp_sweep *sweep, const struct file_ops *ops, int folder);

/* Open the folder `path` ("a" or "a/b") below `root`, made when missing. Descriptor or -errno. */
int folder_open_or_make(const struct file_ops *ops, int root, const char *path);

#endif
