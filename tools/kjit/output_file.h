/* Writing a file whole or not at all. */
#ifndef KJIT_TOOLS_OUTPUT_FILE_H
#define KJIT_TOOLS_OUTPUT_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include <kjit/kjit.h>

/* One stretch of bytes of a file. */
struct output_piece {
  const void *data;
  size_t bytes;
};

/* True when `path` leads to a device, a pipe or a socket. */
bool output_file_is_stream(const char *path);

/* Write the pieces one after another as the file `path`, or as the file that it is a link to, with this mode less the
 * umask. The file is complete or not there: it is written beside its place and renamed. KJIT_ERR_IO: that failed, or a
 * device, pipe or socket has its place. */
kjit_status output_file_write(const char *path, unsigned mode, const struct output_piece *pieces, size_t count,
                              kjit_error *error);

#endif
