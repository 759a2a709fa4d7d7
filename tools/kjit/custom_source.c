/* Turns FILE.cu, the -D options and the -I options of `kjit compile` into a kjit_build_request.
 *
 * 1. The file is read whole; a pipe will do, since its size need not be known before.
 * 2. Its path is split: the last part names the source in the key, and the folder is searched first for headers.
 * 3. Each -D is split at its first '=' into name and value.
 *
 * The request points into memory of struct custom_source, which custom_source_free() gives back. One thread. */
#include "custom_source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static kjit_status no_memory(kjit_error *error) {
  return error_say(error, KJIT_ERR_NO_MEMORY, "out of memory");
}

/* Read the stream to its end; the buffer doubles as it fills, because a pipe does not tell its size. */
static kjit_status text_read(FILE *stream, const char *path, char **text, size_t *bytes, kjit_error *error) {
  for (size_t capacity = 1u << 16; *bytes <= SOURCE_MOST_BYTES; capacity *= 2) {
    char *larger = realloc(*text, capacity);
    if (larger == NULL) return no_memory(error);
    *text = larger;
    *bytes += fread(*text + *bytes, 1, capacity - *bytes - 1, stream);
    (*text)[*bytes] = '\0';
    if (ferror(stream)) return error_say(error, KJIT_ERR_IO, "%s: %s", path, strerror(errno));
    if (feof(stream)) return KJIT_OK;
  }
  return error_say(error, KJIT_ERR_UNSUPPORTED, "%s: a source is at most %u MiB", path, SOURCE_MOST_BYTES >> 20);
}

static kjit_status file_read(struct custom_source *out, const char *path, kjit_error *error) {
  FILE *stream = fopen(path, "rb");
  if (stream == NULL) return error_say(error, KJIT_ERR_IO, "%s: %s", path, strerror(errno));
  const kjit_status status = text_read(stream, path, &out->text, &out->request.source.bytes, error);
  fclose(stream);
  out->request.source.text = out->text;
  return status;
}

/* Split the path. Only its last part is in the key, so that the same file has the same key wherever it lies; the folder
 * becomes the first include directory. */
static kjit_status path_split(struct custom_source *out, const char *path, kjit_error *error) {
  const char *slash = strrchr(path, '/');
  out->request.source.name = slash != NULL ? slash + 1 : path;
  const size_t bytes = slash == path ? 1 : slash != NULL ? (size_t)(slash - path) : 0;
  out->folder = bytes > 0 ? strndup(path, bytes) : strdup(".");
  return out->folder != NULL ? KJIT_OK : no_memory(error);
}

static kjit_status include_dirs_collect(struct custom_source *out, const struct option_list *dirs, kjit_error *error) {
  out->include_dirs = calloc(dirs->count + 1, sizeof *out->include_dirs);
  if (out->include_dirs == NULL) return no_memory(error);
  out->include_dirs[0] = out->folder;
  if (dirs->count > 0) memcpy(out->include_dirs + 1, dirs->items, dirs->count * sizeof *dirs->items);
  out->request.include_dirs = out->include_dirs;
  out->request.include_dir_count = dirs->count + 1;
  return KJIT_OK;
}

static size_t text_total(const struct option_list *list) {
  size_t total = 0;
  for (size_t i = 0; i < list->count; i++)
    total += strlen(list->items[i]) + 1;
  return total;
}

/* Copy all -D options into one buffer, where each '=' becomes a NUL, since argv belongs to the caller. */
static kjit_status defines_collect(struct custom_source *out, const struct option_list *list, kjit_error *error) {
  if (list->count == 0) return KJIT_OK;
  out->defines = calloc(list->count, sizeof *out->defines);
  out->define_text = malloc(text_total(list));
  if (out->defines == NULL || out->define_text == NULL) return no_memory(error);
  char *at = out->define_text;
  for (size_t i = 0; i < list->count; i++) {
    const size_t bytes = strlen(list->items[i]) + 1;
    memcpy(at, list->items[i], bytes);
    char *equals = strchr(at, '=');
    if (equals != NULL) *equals = '\0';
    out->defines[i] = (kjit_define){at, equals != NULL ? equals + 1 : NULL};
    at += bytes;
  }
  out->request.defines = out->defines;
  out->request.define_count = list->count;
  return KJIT_OK;
}

kjit_status custom_source_read(struct custom_source *out, const char *path, const struct option_list *defines,
                               const struct option_list *include_dirs, kjit_error *error) {
  *out = (struct custom_source){.request = kjit_build_request_default()};
  kjit_status status = file_read(out, path, error);
  if (status == KJIT_OK) status = path_split(out, path, error);
  if (status == KJIT_OK) status = include_dirs_collect(out, include_dirs, error);
  if (status == KJIT_OK) status = defines_collect(out, defines, error);
  return status;
}

void custom_source_free(struct custom_source *source) {
  free(source->text);
  free(source->folder);
  free(source->define_text);
  free(source->defines);
  free(source->include_dirs);
  *source = (struct custom_source){0};
}
