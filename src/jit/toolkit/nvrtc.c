/* The connection to NVRTC: where it is, what build it is, and its functions.
 *
 * 1. nvrtc_identity() finds the library's file and reads its build-id (nvrtc_find.c, nvrtc_identity.c), without opening
 *    it. A cache hit needs no more than that.
 * 2. nvrtc_open() opens the file by dlopen, checks that it is still the one whose identity was read, and looks up the
 *    functions that nvrtc_api.def lists. Their signatures are compared with <nvrtc.h> at compile time.
 *
 * Both results are kept in atomic pointers that are set once; of two threads that come at the same time the second
 * gives its result back. No lock is held while files are read or libraries opened. Failures are not kept, because NVRTC
 * may be installed while the process runs. Any thread. */
#include "jit/toolkit/nvrtc.h"

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dynlib.h"
#include "base/error.h"
#include "base/threads/push.h"
#include "jit/toolkit/linker.h"
#include "jit/toolkit/nvrtc_find.h"

#if CUDA_VERSION < 12080
#error "kjit is built with the headers of CUDA 12.8 or later; at run time any NVRTC from 12.0 on will do"
#endif

#if CUDA_VERSION < 13030 /* its header does not declare what later libraries have */
nvrtcResult nvrtcInstallBundledHeaders(const char *folder, unsigned int flags, const char **log);
#endif

#define NVRTC_FN(type, name, args, required)                                                                           \
  _Static_assert(_Generic(&name, type(*) args : 1, default : 0), #name " differs from <nvrtc.h>");
#include "jit/toolkit/nvrtc_api.def"
#undef NVRTC_FN

/* Before it, nothing kept NVRTC from reading headers out of the folder that the process stands in. */
#define OLDEST_MAJOR 12

struct nvrtc_loaded {
  struct dynlib library, builtins;
  struct nvrtc_api api;
  int major, minor;
};

/* Each place is filled once, by whoever comes first: no lock is held while files are read or libraries opened. */
struct nvrtc {
  const struct mem *mem;
  char *asked; /* path to use, NULL for the usual places */
  const char *asked_by;
  unsigned inspected;                     /* NVRTC_INSPECT_* */
  struct push_place place;                /* struct nvrtc_place */
  struct push_place loaded;               /* struct nvrtc_loaded */
  struct push_place identity_with_linker; /* text */
  struct linker linker;
};

static struct nvrtc *make(const struct mem *mem) {
  struct nvrtc *nvrtc = mem_alloc(mem, sizeof *nvrtc);
  if (!nvrtc) return NULL;
  nvrtc->mem = mem;
  linker_init(&nvrtc->linker, mem);
  return nvrtc;
}

kjit_status nvrtc_create(struct nvrtc **out, const struct mem *mem, const char *path, bool use_environment,
                         kjit_error *error) {
  *out = NULL;
  struct nvrtc *nvrtc = make(mem);
  if (!nvrtc) return error_no_memory(error);
  nvrtc->asked_by = "nvrtc_path";
  if (!path && use_environment) {
    path = secure_getenv("KJIT_NVRTC");
    nvrtc->asked_by = "KJIT_NVRTC";
  }
  if (path && *path) {
    nvrtc->asked = mem_strdup(mem, path);
    if (!nvrtc->asked) {
      nvrtc_destroy(nvrtc);
      return error_no_memory(error);
    }
  }
  *out = nvrtc;
  return KJIT_OK;
}

kjit_status nvrtc_create_fake(struct nvrtc **out, const struct mem *mem, const struct nvrtc_api *api,
                              const char *identity, kjit_error *error) {
  *out = NULL;
  struct nvrtc *nvrtc = make(mem);
  struct nvrtc_place *place = mem_alloc(mem, sizeof *place);
  struct nvrtc_loaded *loaded = mem_alloc(mem, sizeof *loaded);
  if (!nvrtc || !place || !loaded || strlen(identity) >= sizeof place->identity) {
    mem_free(mem, nvrtc);
    mem_free(mem, place);
    mem_free(mem, loaded);
    return error_no_memory(error);
  }
  strcpy(place->library, "fake");
  strcpy(place->identity, identity);
  loaded->api = *api;
  (void)api->nvrtcVersion(&loaded->major, &loaded->minor);
  (void)push_place_fill(&nvrtc->place, place);
  (void)push_place_fill(&nvrtc->loaded, loaded);
  *out = nvrtc;
  return KJIT_OK;
}

static void unload(const struct mem *mem, struct nvrtc_loaded *loaded) {
  if (!loaded) return;
  dynlib_close(&loaded->library);
  dynlib_close(&loaded->builtins);
  mem_free(mem, loaded);
}

/* NVRTC stays open: it is not made to be unloaded, and leaves 72 KB behind each time. The next one opens the same. */
void nvrtc_inspect(struct nvrtc *nvrtc, unsigned what) {
  nvrtc->inspected |= what;
}

unsigned nvrtc_inspected(const struct nvrtc *nvrtc) {
  return nvrtc->inspected;
}

void nvrtc_destroy(struct nvrtc *nvrtc) {
  if (!nvrtc) return;
  mem_free(nvrtc->mem, push_place_get(&nvrtc->loaded));
  mem_free(nvrtc->mem, push_place_get(&nvrtc->place));
  mem_free(nvrtc->mem, push_place_get(&nvrtc->identity_with_linker));
  linker_finish(&nvrtc->linker);
  mem_free(nvrtc->mem, nvrtc->asked);
  mem_free(nvrtc->mem, nvrtc);
}

/* Only success is kept: NVRTC may be installed while the process runs. */
static kjit_status get_place(struct nvrtc *nvrtc, const struct nvrtc_place **out, kjit_error *error) {
  *out = push_place_get(&nvrtc->place);
  if (*out) return KJIT_OK;
  struct nvrtc_place *place = mem_alloc(nvrtc->mem, sizeof *place);
  if (!place) return error_no_memory(error);
  const struct nvrtc_search search = {nvrtc->asked, nvrtc->asked_by, ""};
  const kjit_status status = nvrtc_find(place, &search, error);
  if (status == KJIT_OK) *out = push_place_fill(&nvrtc->place, place);
  if (*out != place) mem_free(nvrtc->mem, place);
  return status;
}

const char *nvrtc_identity(struct nvrtc *nvrtc, kjit_error *error) {
  const struct nvrtc_place *place;
  return get_place(nvrtc, &place, error) == KJIT_OK ? place->identity : NULL;
}

const char *nvrtc_file(struct nvrtc *nvrtc, kjit_error *error) {
  const struct nvrtc_place *place;
  return get_place(nvrtc, &place, error) == KJIT_OK ? place->library : NULL;
}

const char *nvrtc_builtins(struct nvrtc *nvrtc) {
  const struct nvrtc_place *place;
  return get_place(nvrtc, &place, NULL) == KJIT_OK ? place->builtins : NULL;
}

static kjit_status resolve(struct nvrtc_loaded *loaded, const char *path, kjit_error *error) {
  static const struct {
    const char *name;
    size_t offset;
    bool required;
  } functions[] = {
#define NVRTC_FN(type, name, args, required) {#name, offsetof(struct nvrtc_api, name), required},
#include "jit/toolkit/nvrtc_api.def"
#undef NVRTC_FN
  };
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    void *symbol = dynlib_symbol(&loaded->library, functions[i].name);
    if (!symbol && functions[i].required) {
      return error_set(error, KJIT_ERR_NO_NVRTC, "%s: lacks %s; NVRTC 12.0 or later is needed", path,
                       functions[i].name);
    }
    /* POSIX, not C, says that a function's address fits a data pointer. */
    memcpy((char *)&loaded->api + functions[i].offset, &symbol, sizeof symbol);
  }
  return KJIT_OK;
}

static kjit_status check_version(struct nvrtc_loaded *loaded, const char *path, kjit_error *error) {
  const nvrtcResult result = loaded->api.nvrtcVersion(&loaded->major, &loaded->minor);
  if (result == NVRTC_SUCCESS && loaded->major >= OLDEST_MAJOR) return KJIT_OK;
  return error_set_cause(error, KJIT_ERR_NO_NVRTC, KJIT_CAUSE_NVRTC, result,
                         "%s: is NVRTC %d.%d; 12.0 or later is needed", path, loaded->major, loaded->minor);
}

/* The key names the build whose identity was read; another one must not compile for it. */
static kjit_status check_unchanged(const struct nvrtc_place *place, kjit_error *error) {
  struct file_identity now;
  if (file_identify(place->library, &now) && file_identity_equal(&now, &place->file)) return KJIT_OK;
  return error_set(error, KJIT_ERR_NO_NVRTC, "%s: was replaced while this process ran; start it again", place->library);
}

static kjit_status load(struct nvrtc_loaded *loaded, const struct nvrtc_place *place, kjit_error *error) {
  kjit_error reason = {0};
  /* NVRTC asks the loader for its builtins by name alone, and finds those that are there already. Without them most
   * sources compile; where they are needed, NVRTC says so. */
  if (place->builtins[0]) (void)dynlib_open(&loaded->builtins, place->builtins, NULL);
  if (dynlib_open(&loaded->library, place->library, &reason) != KJIT_OK) {
    return error_set(error, KJIT_ERR_NO_NVRTC, "NVRTC cannot be opened: %s", reason.message);
  }
  kjit_status status = check_unchanged(place, error);
  if (status == KJIT_OK) status = resolve(loaded, place->library, error);
  if (status == KJIT_OK) status = check_version(loaded, place->library, error);
  return status;
}

/* A thread that comes second has opened the same libraries once more, and gives that reference back. */
static kjit_status get_loaded(struct nvrtc *nvrtc, struct nvrtc_loaded **out, kjit_error *error) {
  *out = push_place_get(&nvrtc->loaded);
  if (*out) return KJIT_OK;
  const struct nvrtc_place *place;
  kjit_status status = get_place(nvrtc, &place, error);
  if (status != KJIT_OK) return status;
  struct nvrtc_loaded *loaded = mem_alloc(nvrtc->mem, sizeof *loaded);
  if (!loaded) return error_no_memory(error);
  status = load(loaded, place, error);
  if (status == KJIT_OK) *out = push_place_fill(&nvrtc->loaded, loaded);
  if (*out != loaded) unload(nvrtc->mem, loaded);
  return status;
}

kjit_status nvrtc_open(struct nvrtc *nvrtc, const struct nvrtc_api **api, int *major, int *minor, kjit_error *error) {
  struct nvrtc_loaded *loaded;
  *api = NULL;
  *major = *minor = 0;
  const kjit_status status = get_loaded(nvrtc, &loaded, error);
  if (status != KJIT_OK) return status;
  *api = &loaded->api;
  *major = loaded->major;
  *minor = loaded->minor;
  return KJIT_OK;
}

const char *nvrtc_linker_identity(struct nvrtc *nvrtc, kjit_error *error) {
  return linker_identity(&nvrtc->linker, nvrtc_file(nvrtc, NULL), error);
}

kjit_status nvrtc_open_linker(struct nvrtc *nvrtc, const struct linker_api **api, kjit_error *error) {
  return linker_open(&nvrtc->linker, nvrtc_file(nvrtc, NULL), api, error);
}

const char *nvrtc_identity_with_linker(struct nvrtc *nvrtc, kjit_error *error) {
  const char *const known = push_place_get(&nvrtc->identity_with_linker);
  if (known) return known;
  const char *const compiler = nvrtc_identity(nvrtc, error);
  const char *const linker = compiler ? nvrtc_linker_identity(nvrtc, error) : NULL;
  if (!linker) return NULL;
  const size_t bytes = strlen(compiler) + strlen(linker) + 2;
  char *const both = mem_alloc(nvrtc->mem, bytes);
  if (!both) {
    error_no_memory(error);
    return NULL;
  }
  (void)snprintf(both, bytes, "%s+%s", compiler, linker);
  const char *const kept = push_place_fill(&nvrtc->identity_with_linker, both);
  if (kept != both) mem_free(nvrtc->mem, both);
  return kept;
}
