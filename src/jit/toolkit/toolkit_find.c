/* Finds the CUDA toolkit's headers that belong to the NVRTC in use.
 *
 * 1. Folders are tried in the order of the table below: the first with CUDA's headers of the compiler's own version is
 *    taken.
 * 2. NVRTC from 13.3 on carries headers of its own version inside. They lie in a folder of the user's cache where a
 *    runtime put them before; where none did, and the cache may be written, NVRTC is asked to put them there now.
 * 3. Otherwise the first folder of the table with any version is taken.
 *
 * With a folder comes the folder `cccl` (Thrust, CUB, libcu++) inside it or, as pip installs it, beside it. The result
 * is kept for the runtime without a lock: of two threads that search at the same time, one result is kept, and NVRTC
 * locks what it writes. Any thread. */
#include "jit/toolkit/toolkit_find.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dynlib.h"
#include "base/files/file.h"
#include "jit/toolkit/environment_find.h"
#include "jit/toolkit/nvrtc_find.h"

/* cuda.h has one megabyte. */
#define CUDA_H_LIMIT ((size_t)8 << 20)

/* The first NVRTC with headers inside, and the file that it writes beside them. */
#define BUNDLED_SINCE  13030
#define BUNDLED_MARKER ".nvrtc_headers_version"

struct toolkit_place {
  char dirs[TOOLKIT_DIRS][DYNLIB_PATH_BYTES];
  const char *list[TOOLKIT_DIRS];
  size_t count;
  unsigned compiler_version; /* 0: the names of its files do not say it */
};

/* Folders of headers, relative to the folder that `variable` names; "" stands for the compiler's own folder, NULL for
 * "/". */
static const struct {
  const char *variable, *pattern;
} known[] = {
    {"", "/../include"},
    {"", "/../../cuda_runtime/include"},
    {"", "/../../cu13/include"},
    {"CUDA_HOME", "/include"},
    {"CUDA_PATH", "/include"},
    {NULL, "/usr/local/cuda/include"},
    {ENVIRONMENT_SITE_PACKAGES, "/nvidia/cu13/include"},
    {ENVIRONMENT_SITE_PACKAGES, "/nvidia/cuda_runtime/include"},
    {"VIRTUAL_ENV", "/lib/python*/site-packages/nvidia/cu13/include"},
    {"VIRTUAL_ENV", "/lib/python*/site-packages/nvidia/cuda_runtime/include"},
    {"CONDA_PREFIX", "/targets/*/include"},
    {NULL, "/usr/local/cuda-*/include"},
    {NULL, "/opt/cuda/include"},
};

void toolkit_init(struct toolkit *toolkit, const struct mem *mem) {
  toolkit->mem = mem;
  toolkit->cache_dir = NULL;
  toolkit->writable = false;
  toolkit->place = (struct push_place){NULL};
}

void toolkit_finish(struct toolkit *toolkit) {
  if (toolkit->mem) mem_free(toolkit->mem, push_place_get(&toolkit->place));
}

static bool has_file(const char *dir, const char *name) {
  char path[DYNLIB_PATH_BYTES];
  struct file_stamp stamp = {0};
  const int length = snprintf(path, sizeof path, "%s/%s", dir, name);
  if (length > 0 && length < (int)sizeof path) file_stamp_read(path, &stamp);
  return stamp.kind == FILE_STAMP_FILE || stamp.kind == FILE_STAMP_FOLDER;
}

unsigned toolkit_header_version(const struct mem *mem, const char *dir) {
  static const char mark[] = "#define CUDA_VERSION ";
  char path[DYNLIB_PATH_BYTES], *text = NULL;
  size_t bytes = 0;
  const int length = snprintf(path, sizeof path, "%s/cuda.h", dir);
  if (length <= 0 || length >= (int)sizeof path) return 0;
  if (file_read(mem, path, CUDA_H_LIMIT, &text, &bytes, NULL) != KJIT_OK) return 0;
  const char *found = strstr(text, mark);
  const unsigned long version = found ? strtoul(found + sizeof mark - 1, NULL, 10) : 0;
  mem_free(mem, text);
  return version < 1000000 ? (unsigned)version : 0;
}

/* "13.0" of libnvrtc-builtins.so.13.0.88 or libnvrtc.so.13.0.88, as 13000. */
static unsigned version_of_file(const char *path) {
  int major, minor;
  return path && nvrtc_file_version(path, &major, &minor) == 2 ? (unsigned)(major * 1000 + minor * 10) : 0;
}

static void add(struct toolkit_place *place, const char *dir, const char *below) {
  if (place->count == TOOLKIT_DIRS) return;
  char *to = place->dirs[place->count];
  const int length = snprintf(to, DYNLIB_PATH_BYTES, "%s%s", dir, below);
  if (length <= 0 || length >= DYNLIB_PATH_BYTES || !has_file(to, ".")) return;
  place->list[place->count] = to;
  place->count++;
}

static bool take(struct toolkit_place *place, const struct mem *mem, const char *dir, bool any_version) {
  if (!has_file(dir, "cuda_runtime_api.h") && !has_file(dir, "cuda_fp16.h")) return false;
  if (!any_version && place->compiler_version && toolkit_header_version(mem, dir) / 10 != place->compiler_version / 10)
    return false;
  add(place, dir, "");
  add(place, dir, "/cccl");
  add(place, dir, "/../../cuda_cccl/include");
  return true;
}

static bool take_matches(struct toolkit_place *place, const struct mem *mem, const char *pattern, bool any_version) {
  glob_t matches;
  bool taken = false;
  if (glob(pattern, 0, NULL, &matches) == 0) {
    for (size_t i = matches.gl_pathc; i > 0 && !taken; i--)
      taken = take(place, mem, matches.gl_pathv[i - 1], any_version);
  }
  globfree(&matches);
  return taken;
}

static void search(struct toolkit_place *place, const struct mem *mem, const char *library, bool any_version) {
  char folder[DYNLIB_PATH_BYTES] = "";
  const char *slash = strrchr(library, '/');
  if (slash) (void)snprintf(folder, sizeof folder, "%.*s", (int)(slash - library), library);
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    char pattern[DYNLIB_PATH_BYTES + 64], found[DYNLIB_PATH_BYTES];
    const char *variable = known[i].variable;
    const char *base = !variable ? "" : *variable ? environment_folder(variable, found) : folder;
    if (!base || (variable && *base != '/')) continue;
    (void)snprintf(pattern, sizeof pattern, "%s%s", base, known[i].pattern);
    if (take_matches(place, mem, pattern, any_version)) return;
  }
}

/* NVRTC's marker file is written last, so that a folder with it is complete. */
static bool take_bundled(struct toolkit_place *place, const struct mem *mem, const char *dir) {
  return has_file(dir, BUNDLED_MARKER) && take(place, mem, dir, true);
}

/* Step 2. The version is part of the folder's name, because NVRTC refuses a folder with another's headers. */
static void search_bundled(struct toolkit_place *place, const struct toolkit *toolkit, struct nvrtc *nvrtc) {
  char dir[DYNLIB_PATH_BYTES];
  const struct nvrtc_api *api = NULL;
  const unsigned version = place->compiler_version;
  int major, minor;
  if (version < BUNDLED_SINCE || !toolkit->cache_dir) return;
  const int length =
      snprintf(dir, sizeof dir, "%s/nvrtc-headers-%u.%u", toolkit->cache_dir, version / 1000, version % 1000 / 10);
  if (length <= 0 || length >= (int)sizeof dir || take_bundled(place, toolkit->mem, dir) || !toolkit->writable) return;
  if (nvrtc_open(nvrtc, &api, &major, &minor, NULL) != KJIT_OK || !api->nvrtcInstallBundledHeaders) return;
  if (api->nvrtcInstallBundledHeaders(dir, 0, NULL) == NVRTC_SUCCESS) (void)take_bundled(place, toolkit->mem, dir);
}

static struct toolkit_place *find(const struct toolkit *toolkit, struct nvrtc *nvrtc) {
  const char *file = nvrtc_file(nvrtc, NULL), *builtins = nvrtc_builtins(nvrtc);
  struct toolkit_place *place = file ? mem_alloc(toolkit->mem, sizeof *place) : NULL;
  if (!place) return NULL;
  char *real = realpath(file, NULL);
  place->compiler_version = version_of_file(builtins);
  if (!place->compiler_version) place->compiler_version = version_of_file(real);
  for (int any_version = 0; any_version < 2 && !place->count; any_version++) {
    if (*file == '/') search(place, toolkit->mem, file, any_version);
    if (!place->count && real) search(place, toolkit->mem, real, any_version);
    if (!place->count && !any_version) search_bundled(place, toolkit, nvrtc);
  }
  free(real);
  return place;
}

void toolkit_extras(struct toolkit *toolkit, struct nvrtc *nvrtc, bool memory_only, struct custom_extras *extras) {
  struct toolkit_place *place = push_place_get(&toolkit->place);
  if (!place && !memory_only) {
    struct toolkit_place *found = find(toolkit, nvrtc);
    if (!found) return;
    place = push_place_fill(&toolkit->place, found);
    if (place != found) mem_free(toolkit->mem, found);
  }
  if (!place) return;
  extras->dirs = place->list;
  extras->dir_count = place->count;
  extras->cuda_version = place->compiler_version;
}
