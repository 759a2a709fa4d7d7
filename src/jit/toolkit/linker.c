/* Finding and opening nvJitLink: beside NVRTC, where toolkits and wheels put it, then in the usual folders, newest
 * first. Only success is kept, since it may be installed while the process runs. Any thread may come; a second one's
 * work is given back. */
#include "jit/toolkit/linker.h"

#include <glob.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dynlib.h"
#include "base/error.h"
#include "base/files/file.h"
#include "jit/toolkit/nvrtc_identity.h"

/* What is known of the file before it is opened: a key needs the identity alone, so a hit never opens the library. */
struct linker_place {
  char library[DYNLIB_PATH_BYTES];
  char identity[NVRTC_IDENTITY_BYTES];
};

struct linker_loaded {
  struct dynlib library;
  struct linker_api api;
};

static const char *const names[] = {"libnvJitLink.so.13", "libnvJitLink.so.12", "libnvJitLink.so"};

/* Where nvJitLink is: beside NVRTC, in wheels before CUDA 13, and in toolkits. */
static const char *const beside_folders[] = {"", "/../../nvjitlink/lib"};
static const char *const usual_folders[] = {"/usr/local/cuda/lib64",
                                            "/usr/local/cuda-*/lib64",
                                            "/usr/lib/x86_64-linux-gnu",
                                            "/usr/lib/aarch64-linux-gnu",
                                            "/usr/lib64",
                                            "/opt/cuda/lib64"};

#define COUNT(array) (sizeof(array) / sizeof *(array))

void linker_init(struct linker *linker, const struct mem *mem) {
  linker->mem = mem;
  linker->place = linker->loaded = (struct push_place){NULL};
}

/* The library stays open, as NVRTC does, because it cannot be unloaded safely. */
void linker_finish(struct linker *linker) {
  if (!linker->mem) return;
  mem_free(linker->mem, push_place_get(&linker->loaded));
  mem_free(linker->mem, push_place_get(&linker->place));
}

static bool find_in_folder(char path[DYNLIB_PATH_BYTES], const char *folder) {
  struct file_identity identity;
  for (size_t i = 0; i < COUNT(names); i++) {
    const int length = snprintf(path, DYNLIB_PATH_BYTES, "%s/%s", folder, names[i]);
    if (length > 0 && length < DYNLIB_PATH_BYTES && file_identify(path, &identity)) return true;
  }
  return false;
}

/* Version by version and not as text, so that cuda-13.0 stands before cuda-9.2. */
static int newest_first(const void *a, const void *b) {
  return strverscmp(*(const char *const *)b, *(const char *const *)a);
}

static bool find_in_pattern(char path[DYNLIB_PATH_BYTES], const char *pattern) {
  glob_t matches;
  bool found = false;
  if (glob(pattern, GLOB_NOSORT, NULL, &matches) == 0) {
    qsort(matches.gl_pathv, matches.gl_pathc, sizeof *matches.gl_pathv, newest_first);
    for (size_t i = 0; i < matches.gl_pathc && !found; i++)
      found = find_in_folder(path, matches.gl_pathv[i]);
  }
  globfree(&matches);
  return found;
}

/* The first place to look, because a linker of another version than NVRTC may not take its objects. */
static bool find_beside(char path[DYNLIB_PATH_BYTES], const char *beside) {
  const char *const slash = beside ? strrchr(beside, '/') : NULL;
  for (size_t i = 0; slash && i < COUNT(beside_folders); i++) {
    char folder[DYNLIB_PATH_BYTES];
    const int length = snprintf(folder, sizeof folder, "%.*s%s", (int)(slash - beside), beside, beside_folders[i]);
    if (length > 0 && length < DYNLIB_PATH_BYTES && find_in_folder(path, folder)) return true;
  }
  return false;
}

static kjit_status find(struct linker_place *place, const char *beside, kjit_error *error) {
  bool found = find_beside(place->library, beside);
  for (size_t i = 0; i < COUNT(usual_folders) && !found; i++)
    found = find_in_pattern(place->library, usual_folders[i]);
  if (found) return library_identify(place->library, "nvjitlink-", place->identity, error);
  return error_set(error, KJIT_ERR_NO_NVRTC,
                   "nvJitLink (libnvJitLink.so.13 or .12), which links, was not found beside NVRTC%s%.200s%s, in "
                   "/usr/local/cuda*/lib64, /usr/lib/*-linux-gnu, /usr/lib64 or /opt/cuda/lib64; install the CUDA "
                   "toolkit or \"pip install nvidia-nvjitlink\"",
                   beside ? " (" : "", beside ? beside : "", beside ? ")" : "");
}

/* Find it once. Of two threads that look at the same time, the first one's place is kept and the other's given back. */
static kjit_status get_place(struct linker *linker, const char *beside, struct linker_place **out, kjit_error *error) {
  *out = push_place_get(&linker->place);
  if (*out) return KJIT_OK;
  struct linker_place *place = mem_alloc(linker->mem, sizeof *place);
  if (!place) return error_no_memory(error);
  const kjit_status status = find(place, beside, error);
  if (status == KJIT_OK) *out = push_place_fill(&linker->place, place);
  if (*out != place) mem_free(linker->mem, place);
  return status;
}

const char *linker_identity(struct linker *linker, const char *beside, kjit_error *error) {
  struct linker_place *place;
  return get_place(linker, beside, &place, error) == KJIT_OK ? place->identity : NULL;
}

/* The functions by their names, from the same list that declares the table. */
static kjit_status load(struct linker_loaded *loaded, const char *path, kjit_error *error) {
  static const struct {
    const char *symbol;
    size_t offset;
  } functions[] = {
#define LINKER_FN(name, symbol, args) {symbol, offsetof(struct linker_api, name)},
#include "jit/toolkit/linker_api.def"
#undef LINKER_FN
  };
  kjit_error reason = {0};
  if (dynlib_open(&loaded->library, path, &reason) != KJIT_OK)
    return error_set(error, KJIT_ERR_NO_NVRTC, "nvJitLink cannot be opened: %s", reason.message);
  for (size_t i = 0; i < COUNT(functions); i++) {
    void *const symbol = dynlib_symbol(&loaded->library, functions[i].symbol);
    if (!symbol)
      return error_set(error, KJIT_ERR_NO_NVRTC, "%s: lacks %s; nvJitLink 12.0 or later is needed", path,
                       functions[i].symbol);
    /* POSIX, not C, says that a function's address fits a data pointer. */
    memcpy((char *)&loaded->api + functions[i].offset, &symbol, sizeof symbol);
  }
  return KJIT_OK;
}

kjit_status linker_open(struct linker *linker, const char *beside, const struct linker_api **api, kjit_error *error) {
  struct linker_loaded *known = push_place_get(&linker->loaded);
  struct linker_place *place;
  *api = known ? &known->api : NULL;
  if (known) return KJIT_OK;
  kjit_status status = get_place(linker, beside, &place, error);
  if (status != KJIT_OK) return status;
  struct linker_loaded *const loaded = mem_alloc(linker->mem, sizeof *loaded);
  if (!loaded) return error_no_memory(error);
  status = load(loaded, place->library, error);
  if (status == KJIT_OK) known = push_place_fill(&linker->loaded, loaded);
  if (known != loaded) {
    dynlib_close(&loaded->library);
    mem_free(linker->mem, loaded);
  }
  *api = known ? &known->api : NULL;
  return status;
}
