/* Where NVRTC is.
 *
 * 1. A path that was asked for is taken, or is an error: nothing else is tried.
 * 2. $LD_LIBRARY_PATH is the user's own choice: its first NVRTC is taken.
 * 3. Otherwise the best of what this process has loaded and of the usual places is taken, not the first: a framework
 *    may have loaded an older one than the machine's toolkit. Only versions of the loaded one's CUDA major take part,
 *    because a driver that is as old as the framework expects refuses the cubins of the next major.
 * 4. The library's builtins are found beside it, since the two files together are the compiler's identity.
 *
 * Nothing is loaded. Thread-safe: everything is on the caller's stack. */
#include "jit/toolkit/nvrtc_find.h"

#include <dirent.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "jit/toolkit/environment_find.h"
#include "jit/toolkit/nvrtc_identity.h"

static const char *const library_names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
#define LIBRARY_NAME_COUNT (sizeof library_names / sizeof *library_names)

/* Folders, as patterns of which every match takes part; with `variable`, below the folder that it names. */
static const struct known_folder {
  const char *variable, *pattern;
} known_folders[] = {
    {"CUDA_HOME", "/lib64"},
    {NULL, "/usr/local/cuda/lib64"},
    {NULL, "/usr/local/cuda-*/lib64"},
    {NULL, "/usr/lib/x86_64-linux-gnu"},
    {NULL, "/usr/lib/aarch64-linux-gnu"},
    {NULL, "/usr/lib64"},
    {NULL, "/opt/cuda/lib64"},
    {ENVIRONMENT_SITE_PACKAGES, "/nvidia/cu13/lib"},
    {ENVIRONMENT_SITE_PACKAGES, "/nvidia/cuda_nvrtc/lib"},
    {"VIRTUAL_ENV", "/lib/python*/site-packages/nvidia/cu13/lib"},
    {"VIRTUAL_ENV", "/lib/python*/site-packages/nvidia/cuda_nvrtc/lib"},
    {"CONDA_PREFIX", "/lib"},
};

/* Join folder and name. False when the path is too long; it is then passed over. */
static bool join(char path[DYNLIB_PATH_BYTES], const char *folder, size_t folder_bytes, const char *name) {
  const int length = snprintf(path, DYNLIB_PATH_BYTES, "%.*s/%s", (int)folder_bytes, folder, name);
  return length > 0 && length < DYNLIB_PATH_BYTES;
}

static bool find_in_folder(char path[DYNLIB_PATH_BYTES], const char *folder, size_t folder_bytes) {
  struct file_identity identity;
  for (size_t i = 0; i < LIBRARY_NAME_COUNT; i++) {
    if (join(path, folder, folder_bytes, library_names[i]) && file_identify(path, &identity)) return true;
  }
  return false;
}

/* True when the version `whole` ("13.0.88") begins with the components of `part` ("13.0"; "" fits any). */
static bool version_begins(const char *whole, const char *part) {
  const size_t bytes = strlen(part);
  return !strncmp(whole, part, bytes) && (!bytes || !whole[bytes] || whole[bytes] == '.');
}

/* The version that the builtins' own must begin with: "13.0" of libnvrtc.so.13.0.88, "12" of libnvrtc.so.12. */
static void builtins_version(char version[16], const char *library) {
  const char *base = strrchr(library, '/'), *text = base ? strstr(base, ".so.") : NULL;
  *version = '\0';
  if (!text) return;
  (void)snprintf(version, 16, "%s", text + 4);
  char *dot = strchr(version, '.');
  if (dot && (dot = strchr(dot + 1, '.'))) *dot = '\0';
}

/* Find the newest builtins in the library's folder that fit its version. */
static void find_builtins(char path[DYNLIB_PATH_BYTES], const char *library) {
  static const char stem[] = "libnvrtc-builtins.so";
  const char *slash = strrchr(library, '/');
  const size_t folder_bytes = slash ? (size_t)(slash - library) : 0;
  char version[16], folder[DYNLIB_PATH_BYTES], best[256] = "";
  *path = '\0';
  if (!slash) return;
  builtins_version(version, library);
  memcpy(folder, library, folder_bytes + 1);
  folder[folder_bytes ? folder_bytes : 1] = '\0';
  DIR *listing = opendir(folder);
  if (!listing) return;
  for (const struct dirent *entry; (entry = readdir(listing));) {
    const char *tail = entry->d_name + sizeof stem - 1;
    if (strncmp(entry->d_name, stem, sizeof stem - 1) != 0 || (*tail && *tail != '.')) continue;
    if (*tail && !version_begins(tail + 1, version)) continue;
    if (strverscmp(entry->d_name, best) > 0) memcpy(best, entry->d_name, strlen(entry->d_name) + 1);
  }
  closedir(listing);
  if (*best && !join(path, folder, strlen(folder), best)) *path = '\0';
}

/* The builtins of a library, which lie beside the file that it is a link to, or beside the link. "" when there are
 * none. */
static void find_its_builtins(char path[DYNLIB_PATH_BYTES], const char *library) {
  char *real = realpath(library, NULL);
  *path = '\0';
  if (real) find_builtins(path, real);
  free(real);
  if (!*path) find_builtins(path, library);
}

/* The best candidate so far. */
struct best {
  char path[DYNLIB_PATH_BYTES];
  int rank;  /* 0: there is none */
  int major; /* of CUDA; 0: any takes part */
};

int nvrtc_file_version(const char *path, int *major, int *minor) {
  const char *base = strrchr(path, '/'), *text = base ? strstr(base, ".so.") : NULL;
  int *const numbers[] = {major, minor};
  int count = 0;
  *major = *minor = 0;
  if (!text) return 0;
  for (text += 4; count < 2; count++, text++) {
    char *end;
    const unsigned long number = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || number > 99) return count;
    *numbers[count] = (int)number;
    text = end;
    if (*text != '.') return count + 1;
  }
  return count;
}

/* 1000 times the major plus the minor version; the builtins' file has both in its name, the library's often only the
 * first. 12.5 ranks below every other, because its ptxas waits for all wgmma products where others wait for some
 * (kernel_src/README.md). */
static int rank_of(const char *library, int *major) {
  char builtins[DYNLIB_PATH_BYTES];
  int minor;
  find_its_builtins(builtins, library);
  if (!nvrtc_file_version(*builtins ? builtins : library, major, &minor)) return 2;
  return *major == 12 && minor == 5 ? 1 : 1000 * *major + minor;
}

/* Take the library if it ranks higher than the best so far and has the major version that is asked for, if one is.
 * Among equals the first stays. */
static void consider(struct best *best, const char *library) {
  int major;
  const int rank = rank_of(library, &major);
  if (rank <= best->rank || (best->major && major != best->major)) return;
  best->rank = rank;
  memcpy(best->path, library, strlen(library) + 1);
}

/* Step 2. Relative folders are passed over, because the compiler would depend on the process's current folder. */
static bool find_in_search_path(char path[DYNLIB_PATH_BYTES], const char *folders) {
  for (const char *at = folders; at && *at;) {
    const size_t bytes = strcspn(at, ":");
    if (*at == '/' && bytes < DYNLIB_PATH_BYTES && find_in_folder(path, at, bytes)) return true;
    at += bytes + (at[bytes] == ':');
  }
  return false;
}

static void consider_loaded(struct best *best) {
  for (size_t i = 0; i < LIBRARY_NAME_COUNT; i++) {
    struct dynlib lib;
    if (!dynlib_open_loaded(&lib, library_names[i])) continue;
    if (lib.path[0] == '/') {
      consider(best, lib.path);
      if (!best->major) (void)rank_of(lib.path, &best->major);
    }
    dynlib_close(&lib);
  }
}

static int newest_first(const void *a, const void *b) {
  return strverscmp(*(const char *const *)b, *(const char *const *)a);
}

/* Folders of toolkits have their version in their names, which counts where the files' names have none. */
static void consider_pattern(struct best *best, const char *pattern) {
  glob_t matches;
  char path[DYNLIB_PATH_BYTES];
  if (glob(pattern, GLOB_NOSORT, NULL, &matches) == 0) {
    qsort(matches.gl_pathv, matches.gl_pathc, sizeof *matches.gl_pathv, newest_first);
    for (size_t i = 0; i < matches.gl_pathc; i++)
      if (find_in_folder(path, matches.gl_pathv[i], strlen(matches.gl_pathv[i]))) consider(best, path);
  }
  globfree(&matches);
}

static void consider_known_folders(struct best *best, const char *root) {
  for (size_t i = 0; i < sizeof known_folders / sizeof *known_folders; i++) {
    const struct known_folder *folder = &known_folders[i];
    char found[DYNLIB_PATH_BYTES];
    const char *base = folder->variable ? environment_folder(folder->variable, found) : root;
    char pattern[DYNLIB_PATH_BYTES];
    if (!base || (folder->variable && *base != '/')) continue;
    const int length = snprintf(pattern, sizeof pattern, "%s%s", base, folder->pattern);
    if (length > 0 && length < (int)sizeof pattern) consider_pattern(best, pattern);
  }
}

static bool find_asked(char path[DYNLIB_PATH_BYTES], const char *asked, size_t bytes) {
  struct file_identity identity;
  if (!bytes || bytes >= DYNLIB_PATH_BYTES) return false;
  if (!file_identify(asked, &identity)) return find_in_folder(path, asked, bytes);
  memcpy(path, asked, bytes + 1);
  return true;
}

/* Make the path absolute. The loader would search for a name without a slash, and a relative path changes its meaning
 * with chdir(). */
static bool make_absolute(char path[DYNLIB_PATH_BYTES]) {
  if (*path == '/') return true;
  char *absolute = realpath(path, NULL);
  const bool fits = absolute && strlen(absolute) < DYNLIB_PATH_BYTES;
  if (fits) memcpy(path, absolute, strlen(absolute) + 1);
  free(absolute);
  return fits;
}

/* Step 1. */
static kjit_status take_asked(char path[DYNLIB_PATH_BYTES], const struct nvrtc_search *search, kjit_error *error) {
  if (find_asked(path, search->asked, strlen(search->asked)) && make_absolute(path)) return KJIT_OK;
  return error_set(error, KJIT_ERR_NO_NVRTC,
                   "%s: \"%.200s\" is neither a file nor a folder with libnvrtc.so.13, libnvrtc.so.12 or libnvrtc.so",
                   search->asked_by, search->asked);
}

static kjit_status find_library(char path[DYNLIB_PATH_BYTES], const struct nvrtc_search *search, kjit_error *error) {
  if (search->asked) return take_asked(path, search, error);
  if (find_in_search_path(path, secure_getenv("LD_LIBRARY_PATH"))) return KJIT_OK;
  struct best best = {.rank = 0};
  consider_loaded(&best);
  consider_known_folders(&best, search->root);
  if (best.rank) {
    memcpy(path, best.path, sizeof best.path);
    return KJIT_OK;
  }
  return error_set(error, KJIT_ERR_NO_NVRTC,
                   "NVRTC (libnvrtc.so.13 or libnvrtc.so.12) was not found in $LD_LIBRARY_PATH, $CUDA_HOME/lib64, "
                   "/usr/local/cuda*/lib64, /usr/lib/*-linux-gnu, /usr/lib64, /opt/cuda/lib64, $VIRTUAL_ENV, "
                   "$CONDA_PREFIX, the running Python's environment; install the CUDA toolkit or \"pip install "
                   "nvidia-cuda-nvrtc\", or set KJIT_NVRTC to "
                   "the file or its folder; what is in the cache or a bundle works without it");
}

kjit_status nvrtc_find(struct nvrtc_place *place, const struct nvrtc_search *search, kjit_error *error) {
  *place = (struct nvrtc_place){0};
  const kjit_status status = find_library(place->library, search, error);
  if (status != KJIT_OK) return status;
  find_its_builtins(place->builtins, place->library);
  return nvrtc_read_identity(place, error);
}
