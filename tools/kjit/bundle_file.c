/* How the `kjit bundle` actions write their results: a file that appears whole or not at all, and the C source that
 * `--c-source` asks for.
 *
 * A file is written under a temporary name beside its final place, flushed to the disk and renamed, so that a reader
 * never sees half of it and a failure leaves the old file as it was. What is there already and is no regular file, such
 * as a device or a pipe, stays what it is. One thread. */
#include "bundle.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static kjit_status file_failed(const char *what, const char *path, kjit_error *error) {
  return error_say(error, KJIT_ERR_IO, "%s cannot be %s: %s", path, what, strerror(errno));
}

static bool pieces_write(FILE *stream, const struct bundle_piece *pieces, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (pieces[i].bytes > 0 && fwrite(pieces[i].data, pieces[i].bytes, 1, stream) != 1) return false;
  return fflush(stream) == 0 && fsync(fileno(stream)) == 0;
}

/* Write the pieces to `file`, which mkstemp() has created as `temporary`, and rename it to `path`. mkstemp() creates
 * with mode 0600, so the mode that is wanted is set here, less the bits of the process's umask. */
static kjit_status temporary_write(int file, const char *temporary, const char *path, unsigned mode,
                                   const struct bundle_piece *pieces, size_t count, kjit_error *error) {
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

kjit_status bundle_file_write(const char *path, unsigned mode, const struct bundle_piece *pieces, size_t count,
                              kjit_error *error) {
  char temporary[4096];
  struct stat there;
  /* Links are followed, because /dev/stdout is one; a folder refuses the rename by itself. */
  if (stat(path, &there) == 0 && !S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode))
    return error_say(error, KJIT_ERR_IO, "%s cannot be written: it is there, and is no regular file", path);
  if (snprintf(temporary, sizeof temporary, "%s.XXXXXX", path) >= (int)sizeof temporary)
    return error_say(error, KJIT_ERR_INVALID_ARG, "%.80s…: the path is too long", path);
  const int file = mkstemp(temporary);
  if (file < 0) return file_failed("written", path, error);
  const kjit_status status = temporary_write(file, temporary, path, mode, pieces, count, error);
  if (status != KJIT_OK) unlink(temporary);
  return status;
}

bool bundle_symbol_is_sound(const char *symbol) {
  if (!isalpha((unsigned char)*symbol) && *symbol != '_') return false;
  for (; *symbol != '\0'; symbol++)
    if (!isalnum((unsigned char)*symbol) && *symbol != '_') return false;
  return true;
}

/* Bytes that bundle_c_source() needs at most: 4 for each byte (",255"), a newline after every 32 bytes, and the lines
 * around the array, which name the symbol four times. */
static size_t source_capacity(const char *symbol, const struct bundle_piece *pieces, size_t count) {
  size_t bytes = 0;
  for (size_t i = 0; i < count; i++)
    bytes += pieces[i].bytes;
  return 5 * bytes + 4 * strlen(symbol) + 512;
}

char *bundle_c_source(const char *origin, const char *symbol, const struct bundle_piece *pieces, size_t count) {
  const size_t capacity = source_capacity(symbol, pieces, count) + strlen(origin);
  char *text = malloc(capacity);
  if (text == NULL) return NULL;
  size_t total = 0;
  int at = snprintf(text, capacity,
                    "/* Written by %s. */\n"
                    "#include <stddef.h>\n\n"
                    "extern const unsigned char %s[];\nextern const size_t %s_bytes;\n\nconst unsigned char %s[] = {\n",
                    origin, symbol, symbol, symbol);
  char *end = text + at;
  for (size_t i = 0; i < count; i++)
    for (size_t j = 0; j < pieces[i].bytes; j++)
      end += sprintf(end, ++total % 32 == 0 ? "%u,\n" : "%u,", ((const unsigned char *)pieces[i].data)[j]);
  snprintf(end, capacity - (size_t)(end - text), "\n};\n\nconst size_t %s_bytes = %zu;\n", symbol, total);
  return text;
}
