/* Where `kjit tune` keeps its results: kjit_tune_publish() puts them into the user's cache folder; with --out they go
 * into a file, which is read, merged by kjit_tune_print() and replaced by a rename, so that a reader never sees half of
 * it. One thread; two processes must not write the same file. */
#include "tune_table.h"

#include "output_file.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The same bound as the library's (tune_store.c): a larger file is no tuned table. */
#define TABLE_MAX ((size_t)8 << 20)

static kjit_status io_error(const char *path, kjit_error *error) {
  return error_say(error, KJIT_ERR_IO, "%s: %s", path, strerror(errno));
}

static kjit_status read_stream(FILE *stream, const char *path, char **text, kjit_error *error) {
  char *read = malloc(TABLE_MAX + 1);
  if (read == NULL) return error_say(error, KJIT_ERR_NO_MEMORY, "out of memory for %s", path);
  const size_t bytes = fread(read, 1, TABLE_MAX + 1, stream);
  if (!ferror(stream) && bytes <= TABLE_MAX) {
    read[bytes] = '\0';
    *text = read;
    return KJIT_OK;
  }
  free(read);
  return ferror(stream) ? io_error(path, error) : error_say(error, KJIT_ERR_PARSE, "%s: larger than any table", path);
}

/* Read the file as text; `*text` is NULL when there is no file. */
static kjit_status read_table(const char *path, char **text, kjit_error *error) {
  *text = NULL;
  FILE *stream = fopen(path, "r");
  if (stream == NULL) return errno == ENOENT ? KJIT_OK : io_error(path, error);
  const kjit_status status = read_stream(stream, path, text, error);
  fclose(stream);
  return status;
}

kjit_status tune_table_put(kjit_runtime *runtime, const kjit_device_info *device, const kjit_tune_result *result,
                           const char *path, kjit_error *error) {
  char *before = NULL, *text = NULL;
  if (path == NULL) return kjit_tune_publish(runtime, device, result, error);
  kjit_status status = read_table(path, &before, error);
  if (status == KJIT_OK) status = kjit_tune_print(runtime, device, result, before, &text, error);
  const struct output_piece piece = {text, text != NULL ? strlen(text) : 0};
  if (status == KJIT_OK) status = output_file_write(path, 0666, &piece, 1, error);
  kjit_text_free(runtime, text);
  free(before);
  return status;
}
