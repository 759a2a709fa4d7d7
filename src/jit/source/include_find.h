/* Where an #include leads, by the rules of bare NVRTC, and which files and folders were looked at for it. */
#ifndef KJIT_JIT_SOURCE_INCLUDE_FIND_H
#define KJIT_JIT_SOURCE_INCLUDE_FIND_H

#include <stdbool.h>

#include "base/arena.h"
#include "jit/source/include_terms.h"
#include "jit/source/library_headers.h"

#define INCLUDE_PATH_LIMIT 4096

/* Where a file was found. #include_next goes on behind it. */
enum include_kind {
  INCLUDE_MAIN,
  INCLUDE_MEMORY,
  INCLUDE_BESIDE,
  INCLUDE_FOLDER,
  INCLUDE_LIBRARY,
  INCLUDE_SHIM,
  INCLUDE_ABSOLUTE
};

struct include_place {
  enum include_kind kind;
  size_t folder;                 /* index of the folder, of INCLUDE_FOLDER */
  const kjit_source *header;     /* of INCLUDE_MEMORY, INCLUDE_LIBRARY and INCLUDE_SHIM */
  char path[INCLUDE_PATH_LIMIT]; /* as messages show it: the folder as given, "/", the name as written */
  struct file_stamp stamp;       /* of a file on disk */
};

/* The includer. */
struct include_from {
  enum include_kind kind;
  size_t folder;
  const char *path; /* its name, when it is in memory */
};

struct looked_at; /* a path that was looked at */

struct include_finder {
  const struct mem *mem;
  struct arena *arena;
  const struct include_search *search;
  struct looked_at *looked_at; /* by path */
  struct library_headers library;
  bool withheld; /* a header of kjit's own was asked for whose text this library was built without */
};

void include_finder_init(struct include_finder *finder, const struct mem *mem, struct arena *arena,
                         const struct include_search *search);
void include_finder_finish(struct include_finder *finder);

/* False when the name leads nowhere. `next`: an #include_next. */
bool include_find(struct include_finder *finder, const struct include_from *from, const char *name, bool angled,
                  bool next, struct include_place *place);

/* The same for __has_include, which does not see the library's stand-ins: a source that asks has its own way to do
 * without. */
bool include_exists(struct include_finder *finder, const struct include_from *from, const char *name, bool angled,
                    bool next);

/* The folders where a name was not found, and nothing else: `watches` has room for include_folder_count(). */
size_t include_folder_count(const struct include_finder *finder);
void include_folders(const struct include_finder *finder, struct include_watch *watches);

#endif
