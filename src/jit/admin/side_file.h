/* A file beside the entries of the cache folders, for what is not a kernel. It is read whole and replaced whole, under
 * a lock that all processes sharing the folder take. The folders' rules on paths, owners and modes apply to it too.
 *
 * To change one: side_file_lock(), side_file_read(), side_file_replace(), side_file_unlock(). Reading alone needs no
 * lock. */
#ifndef KJIT_JIT_ADMIN_SIDE_FILE_H
#define KJIT_JIT_ADMIN_SIDE_FILE_H

#include "base/text.h"
#include "jit/builder.h"

/* The longest wait for the lock. A healthy holder reads and writes one small file, which takes milliseconds. */
#define SIDE_FILE_WAIT_S 30

struct side_file {
  const char *folder; /* below the cache folder, one name: "tuned" */
  const char *name;
  size_t limit; /* a larger file is an error */
};

/* The file's path in the user's folder, for messages; "" without a folder. */
void side_file_path(struct builder *builder, const struct side_file *file, char *path, size_t capacity);

/* A copy with a NUL behind it (mem_free), from the user's folder or the site's (KJIT_ORIGIN_*). KJIT_ERR_NOT_FOUND: no
 * such file or no such folder; KJIT_ERR_IO; KJIT_ERR_NO_MEMORY. Thread-safe. */
kjit_status side_file_read(struct builder *builder, kjit_origin tier, const struct side_file *file, char **data,
                           size_t *bytes, kjit_error *error);

struct side_file_lock;

/* Between these two no other caller of side_file_lock() changes the user's file. KJIT_ERR_IO without a folder that can
 * be written to, KJIT_ERR_TIMEOUT, KJIT_ERR_NO_MEMORY. On a file system without locks they succeed and exclude nobody.
 */
kjit_status side_file_lock(struct builder *builder, const struct side_file *file, struct side_file_lock **out,
                           kjit_error *error);
void side_file_unlock(struct side_file_lock *lock); /* accepts NULL */

/* Replace the user's file durably. Others see the old content or the new one, never a part. */
kjit_status side_file_replace(struct builder *builder, const struct side_file *file, const void *data, size_t bytes,
                              kjit_error *error);

#endif
