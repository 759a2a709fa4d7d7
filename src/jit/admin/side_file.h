/* A file that lies beside the entries of the cache folders, for what is not a kernel: read whole, replaced whole, under
 * a lock that processes which share the folder respect. The folders' own rules on paths, owners and modes hold. */
#ifndef KJIT_JIT_ADMIN_SIDE_FILE_H
#define KJIT_JIT_ADMIN_SIDE_FILE_H

#include "base/text.h"
#include "jit/builder.h"

/* Nobody waits longer for the lock: its holder reads and writes one small file. */
#define SIDE_FILE_WAIT_S 30

struct side_file {
  const char *folder; /* below the cache folder, one name: "tuned" */
  const char *name;
  size_t limit; /* a larger file is an error */
};

/* The path that people see, of the user's folder: "" without a folder. */
void side_file_path(struct builder *builder, const struct side_file *file, char *path, size_t capacity);

/* A copy with a NUL behind it (mem_free), from the user's folder or the site's (KJIT_ORIGIN_*). KJIT_ERR_NOT_FOUND: no
 * such file or no such folder; KJIT_ERR_IO; KJIT_ERR_NO_MEMORY. Thread-safe. */
kjit_status side_file_read(struct builder *builder, kjit_origin tier, const struct side_file *file, char **data,
                           size_t *bytes, kjit_error *error);

struct side_file_lock;

/* Between these two nobody else who locks it changes the user's file. KJIT_ERR_IO without a folder that can be written
 * to, KJIT_ERR_TIMEOUT, KJIT_ERR_NO_MEMORY. Where the file system has no locks, there is none to respect. */
kjit_status side_file_lock(struct builder *builder, const struct side_file *file, struct side_file_lock **out,
                           kjit_error *error);
void side_file_unlock(struct side_file_lock *lock); /* accepts NULL */

/* Make the user's file this one, durably: others see the old one or the new one. */
kjit_status side_file_replace(struct builder *builder, const struct side_file *file, const void *data, size_t bytes,
                              kjit_error *error);

#endif
