/* The one file that calls dlopen(), dlsym() and dlclose(); tools/checks/layers.py holds the others to that.
 *
 * Opening a library also asks the loader which file it chose, because the identity of NVRTC is read from that file
 * and reports name it. Libraries are opened RTLD_LOCAL, so that their symbols cannot meet those of the program.
 *
 * The loader has its own lock, so different threads may open different struct dynlibs. One struct dynlib must not be
 * opened or closed while another thread uses it. */
#include "base/dynlib.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* Note which file the loader chose. A path that does not fit is left out rather than cut, because half a path names
 * another file. */
static void remember_path(struct dynlib *lib) {
  struct link_map *map = NULL;
  lib->path[0] = '\0';
  if (dlinfo(lib->handle, RTLD_DI_LINKMAP, &map) || !map || !map->l_name) return;
  char *absolute = map->l_name[0] == '/' ? strdup(map->l_name) : realpath(map->l_name, NULL);
  if (absolute && strlen(absolute) < sizeof lib->path) strcpy(lib->path, absolute);
  free(absolute);
}

kjit_status dynlib_open(struct dynlib *lib, const char *name, kjit_error *error) {
  *lib = (struct dynlib){0};
  lib->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!lib->handle) {
    const char *reason = dlerror();
    return error_set(error, KJIT_ERR_NOT_FOUND, "%s", reason ? reason : name);
  }
  remember_path(lib);
  return KJIT_OK;
}

bool dynlib_open_loaded(struct dynlib *lib, const char *name) {
  *lib = (struct dynlib){0};
  lib->handle = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
  if (!lib->handle) {
    (void)dlerror(); /* the next reader of dlerror() must not find this */
    return false;
  }
  remember_path(lib);
  return true;
}

void *dynlib_symbol(const struct dynlib *lib, const char *symbol) {
  return lib->handle ? dlsym(lib->handle, symbol) : NULL;
}

void dynlib_close(struct dynlib *lib) {
  if (lib->handle) dlclose(lib->handle);
  *lib = (struct dynlib){0};
}

bool dynlib_own_folder(char path[DYNLIB_PATH_BYTES]) {
  static const char here;
  Dl_info info;
  if (!dladdr(&here, &info) || !info.dli_fname) return false;
  char *absolute = realpath(info.dli_fname, NULL);
  const char *slash = absolute ? strrchr(absolute, '/') : NULL;
  const size_t bytes = slash ? (size_t)(slash - absolute) : 0;
  const bool fits = slash && bytes < DYNLIB_PATH_BYTES;
  if (fits) memcpy(path, absolute, bytes);
  if (fits) path[bytes] = '\0';
  free(absolute);
  return fits;
}
