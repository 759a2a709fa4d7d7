/* Families by name or file: a word without dot and slash is looked up among kjit's own; anything else is a path, which
 * is opened the first time and found by its text after that.
 *
 * Threads: one thread opens families; what it forks may use them. */
#include "family_files.h"

#include "command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As long as the longest path that Linux takes. */
#define PATH_BYTES 4096

void family_files_close(struct family_files *files) {
  for (size_t i = 0; i < files->count; i++) {
    kjit_family_release(files->items[i].family);
    free(files->items[i].path);
  }
  free(files->items);
  *files = (struct family_files){0};
}

bool family_is_file(const char *name) {
  return strpbrk(name, "./") != NULL;
}

static kjit_status file_add(struct family_files *files, const char *path, kjit_error *error) {
  struct family_file *items = realloc(files->items, (files->count + 1) * sizeof *items);
  if (items == NULL) return error_say(error, KJIT_ERR_NO_MEMORY, "out of memory for a family");
  files->items = items;
  struct family_file *file = &items[files->count];
  *file = (struct family_file){.path = strdup(path)};
  if (file->path == NULL) return error_say(error, KJIT_ERR_NO_MEMORY, "out of memory for a family");
  const kjit_status status = kjit_family_open(&file->family, path, error);
  if (status == KJIT_OK)
    files->count++;
  else
    free(file->path);
  return status;
}

static kjit_status file_find(struct family_files *files, const char *path, const kjit_family **out, kjit_error *error) {
  size_t index = 0;
  while (index < files->count && strcmp(files->items[index].path, path) != 0)
    index++;
  const kjit_status status = index < files->count ? KJIT_OK : file_add(files, path, error);
  if (status == KJIT_OK) *out = files->items[index].family;
  return status;
}

kjit_status family_files_find(struct family_files *files, const char *name, const char *folder, const kjit_family **out,
                              kjit_error *error) {
  char path[PATH_BYTES];
  *out = NULL;
  if (!family_is_file(name)) {
    *out = kjit_family_find(name);
    if (*out != NULL) return KJIT_OK;
    return error_say(error, KJIT_ERR_NOT_FOUND,
                     "'%.60s' is no family: kjit's own are known by name, such as attention_sm90, and a user's by its "
                     "file, as in ./%.60s.yaml",
                     name, name);
  }
  const bool is_beside = folder != NULL && name[0] != '/';
  const int bytes =
      is_beside ? snprintf(path, sizeof path, "%s/%s", folder, name) : snprintf(path, sizeof path, "%s", name);
  if (bytes < 0 || (size_t)bytes >= sizeof path)
    return error_say(error, KJIT_ERR_INVALID_ARG, "a path is longer than %d bytes: %.60s…", PATH_BYTES - 1, path);
  return file_find(files, path, out, error);
}
