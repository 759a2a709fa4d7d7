/* Whole files, read-only: mapped or read. Regular files only; what is being read may not exceed the limit given. */
#ifndef KJIT_BASE_FILE_H
#define KJIT_BASE_FILE_H

#include <stdbool.h>
#include <time.h>

#include "base/mem.h"

/* Which file this is. Two equal identities mean the same file with the same content, as far as the file system tells.
 */
struct file_identity {
  uint64_t device, inode, bytes;
  struct timespec modified;
};

struct file_map {
  const void *data; /* NULL when closed, and for an empty file */
  size_t bytes;
  struct file_identity identity;
};

/* KJIT_ERR_NOT_FOUND: no such file. KJIT_ERR_IO: not a regular file, larger than `limit`, or errno in error->cause. */
kjit_status file_map_open(struct file_map *map, const char *path, size_t limit, kjit_error *error);
void file_map_close(struct file_map *map); /* accepts a closed one */

/* A copy of the file with a NUL behind it (mem_free). As above, and KJIT_ERR_NO_MEMORY. */
kjit_status file_read(const struct mem *mem, const char *path, size_t limit, char **data, size_t *bytes,
                      kjit_error *error);

/* False when there is no such regular file. */
bool file_identify(const char *path, struct file_identity *identity);
bool file_identity_equal(const struct file_identity *a, const struct file_identity *b);

/* What is at a path and when it last changed. The time of change is the kernel's own: unlike the time of modification
 * it cannot be set back by who writes the file. Links are followed. */
enum file_stamp_kind { FILE_STAMP_NONE, FILE_STAMP_FILE, FILE_STAMP_FOLDER, FILE_STAMP_OTHER };
struct file_stamp {
  uint64_t device, inode, bytes;
  int64_t modified_ns, changed_ns;
  uint64_t kind; /* enum file_stamp_kind */
};
void file_stamp_read(const char *path, struct file_stamp *stamp);

/* Folders that are held open while the stamps of many files in them are read, because the way to a file through eight
 * folders costs more than the look at it. The paths must outlive it. One thread. */
#define FILE_FOLDERS_MOST 64
#define FILE_FOLDER_BYTES 1024
struct file_folders {
  struct file_folder {
    const char *path;
    size_t bytes;
    int file; /* -1: it cannot be opened */
  } table[FILE_FOLDERS_MOST];
};
void file_folders_open(struct file_folders *folders);
void file_folders_close(struct file_folders *folders);
void file_stamp_read_in(struct file_folders *folders, const char *path, struct file_stamp *stamp);

bool file_stamp_equal(const struct file_stamp *a, const struct file_stamp *b);

#endif
