/* A private folder for each test, which is removed with everything in it at the test's end. */
#ifndef KJIT_TESTS_SUPPORT_TEMP_FOLDER_H
#define KJIT_TESTS_SUPPORT_TEMP_FOLDER_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEMP_PATH_BYTES 512

struct temp_folder {
  char path[TEMP_PATH_BYTES];
};

/* Returns 0 on success, as cmocka's setup functions do. */
static inline int temp_folder_create(struct temp_folder *folder) {
  const char *parent = getenv("TMPDIR");
  snprintf(folder->path, sizeof folder->path, "%s/kjit-test-XXXXXX", parent && *parent ? parent : "/tmp");
  return mkdtemp(folder->path) ? 0 : -1;
}

static inline int temp_folder_remove_visit(const char *path, const struct stat *info, int kind, struct FTW *walk) {
  (void)info;
  (void)walk;
  if (kind == FTW_DNR) chmod(path, 0700);
  return remove(path);
}

/* Remove the folder, also if a test has made parts of it unwritable. Accepts one that was never made. */
static inline int temp_folder_remove(struct temp_folder *folder) {
  if (!folder->path[0]) return 0;
  nftw(folder->path, temp_folder_remove_visit, 16, FTW_DEPTH | FTW_PHYS);
  folder->path[0] = '\0';
  return 0;
}

/* Write "<folder>/<name>" into `path`. */
static inline void temp_folder_path(const struct temp_folder *folder, const char *name, char path[TEMP_PATH_BYTES]) {
  if (snprintf(path, TEMP_PATH_BYTES, "%s/%s", folder->path, name) >= TEMP_PATH_BYTES) abort();
}

/* Write a file, and make the folders in its name. Returns 0 on success. */
static inline int temp_folder_write(const struct temp_folder *folder, const char *name, const void *data,
                                    size_t bytes) {
  char path[TEMP_PATH_BYTES];
  temp_folder_path(folder, name, path);
  for (char *slash = path + strlen(folder->path) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
    *slash = '\0';
    mkdir(path, 0700);
  }
  FILE *file = fopen(path, "wb");
  if (!file) return -1;
  const int failed = bytes && fwrite(data, bytes, 1, file) != 1;
  return fclose(file) || failed ? -1 : 0;
}

static inline int temp_folder_write_text(const struct temp_folder *folder, const char *name, const char *text) {
  return temp_folder_write(folder, name, text, strlen(text));
}

/* A group's fixture: cmocka_unit_test_setup_teardown(test, temp_folder_setup, temp_folder_teardown). */
static inline int temp_folder_setup(void **state) {
  struct temp_folder *folder = calloc(1, sizeof *folder);
  *state = folder;
  return folder ? temp_folder_create(folder) : -1;
}

static inline int temp_folder_teardown(void **state) {
  if (*state) temp_folder_remove(*state);
  free(*state);
  *state = NULL;
  return 0;
}

#endif
