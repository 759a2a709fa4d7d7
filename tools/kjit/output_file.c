/* How the command writes its results: as files that appear whole or not at all.
 *
 * A file is written under a temporary name beside its final place, flushed to the disk and renamed, so that a reader
 * never sees half of it and a failure leaves the old file as it was. A symbolic link to a file stays, and that file is
 * replaced. What is there already and is no regular file, such as a device or a pipe, stays what it is. The library's
 * kjit_cache_export() has the same rules in cache_bundle.c, where each call can be made to fail by a test; this command
 * uses the public API alone, which writes no file that is not an export. One thread. */
#include "output_file.h"

#include "command.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static kjit_status file_failed(const char *what, const char *path, kjit_error *error) {
  return error_say(error, KJIT_ERR_IO, "%s cannot be %s: %s", path, what, strerror(errno));
}

static bool pieces_write(FILE *stream, const struct output_piece *pieces, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (pieces[i].bytes > 0 && fwrite(pieces[i].data, pieces[i].bytes, 1, stream) != 1) return false;
  return fflush(stream) == 0 && fsync(fileno(stream)) == 0;
}

/* Write the pieces to `file`, which mkstemp() has created as `temporary`, and rename it to `path`. mkstemp() creates
 * with mode 0600, so the mode that is wanted is set here, less the bits of the process's umask. */
static kjit_status temporary_write(int file, const char *temporary, const char *path, unsigned mode,
                                   const struct output_piece *pieces, size_t count, kjit_error *error) {
  FILE *stream = fdopen(file, "wb");
  if (stream == NULL) {
    close(file);
    return file_failed("written", path, error);
  }
  const mode_t mask = umask(0);
  umask(mask);
  const bool written = fchmod(file, (mode_t)mode & ~mask) == 0 && pieces_write(stream, pieces, count);
  const bool closed = fclose(stream) == 0;
  if (written && closed && rename(temporary, path) == 0) return KJIT_OK;
  return file_failed("written", path, error);
}

static bool is_stream(const struct stat *there) {
  return !S_ISREG(there->st_mode) && !S_ISDIR(there->st_mode);
}

bool output_file_is_stream(const char *path) {
  struct stat there;
  return stat(path, &there) == 0 && is_stream(&there);
}

/* `real` becomes the path that the rename replaces: what `path` leads to, or `path` itself where nothing is there. A
 * folder refuses the rename by itself. stat() looks at what is there, because /dev/stdout can lead to a pipe, which has
 * no path. */
static kjit_status target_find(const char *path, char real[PATH_MAX], kjit_error *error) {
  struct stat there;
  if (*path == '\0') return error_say(error, KJIT_ERR_INVALID_ARG, "the path of the file to write is empty");
  if (stat(path, &there) != 0) {
    if (errno != ENOENT) return file_failed("written", path, error);
    if (snprintf(real, PATH_MAX, "%s", path) < PATH_MAX) return KJIT_OK;
    return error_say(error, KJIT_ERR_INVALID_ARG, "%.80s…: the path is too long", path);
  }
  if (is_stream(&there))
    return error_say(error, KJIT_ERR_IO, "%s cannot be written: it is there, and is no regular file", path);
  return realpath(path, real) != NULL ? KJIT_OK : file_failed("written", path, error);
}

kjit_status output_file_write(const char *path, unsigned mode, const struct output_piece *pieces, size_t count,
                              kjit_error *error) {
  char real[PATH_MAX], temporary[PATH_MAX];
  const kjit_status found = target_find(path, real, error);
  if (found != KJIT_OK) return found;
  if (snprintf(temporary, sizeof temporary, "%s.XXXXXX", real) >= (int)sizeof temporary)
    return error_say(error, KJIT_ERR_INVALID_ARG, "%.80s…: the path is too long", real);
  const int file = mkstemp(temporary);
  if (file < 0) return file_failed("written", path, error);
  const kjit_status status = temporary_write(file, temporary, real, mode, pieces, count, error);
  if (status != KJIT_OK) unlink(temporary);
  return status;
}
