/* Every header that a caller's source can reach, with its text: what the key covers and all that the compiler sees. */
#ifndef KJIT_JIT_REQUEST_INCLUDE_CLOSURE_H
#define KJIT_JIT_REQUEST_INCLUDE_CLOSURE_H

#include <kjit/build.h>

#include "jit/request/library_headers.h"
#include "jit/request/source_set.h"

/* Where headers come from. A name is looked for among the headers in memory; of a quoted one, then in the including
 * file's folder (in memory, if the file is there); then in the folders, in order; then among the headers that kjit
 * gives to every kernel (library_headers.h). */
struct include_search {
  const kjit_source *headers; /* names distinct, texts without NUL, `bytes` set */
  size_t header_count;
  const char *const *dirs;
  size_t dir_count;
};

struct closure_file;

struct include_closure {
  const struct mem *mem;
  const struct include_search *search;
  struct closure_file **files; /* [0] is the source itself */
  size_t count, capacity;
  struct closure_file *by_name; /* headers, by the name written in #include */
  size_t bytes;                 /* of all texts */
  struct library_headers library;
  kjit_error *error;
};

/* Collect the closure of `source` (`bytes` set, no NUL in it).
 * KJIT_ERR_NOT_FOUND    an #include that every compile would read is nowhere: the error has file, line and name
 * KJIT_ERR_INVALID_ARG  a name that is absolute or computed, one name that means two different files, a NUL in a file,
 *                       or more than 4096 files, 64 MiB or 200 levels
 * KJIT_ERR_UNSUPPORTED  a header of kjit's own, <kjit/...>, whose text this library was built without
 * KJIT_ERR_IO, KJIT_ERR_NO_MEMORY
 * Finish it in every case. */
kjit_status include_closure_collect(struct include_closure *closure, const struct mem *mem,
                                    const struct include_search *search, const kjit_source *source, kjit_error *error);

/* The files as a sealed set, in memory of the closure's mem (mem_free(files)); it points into the closure. */
kjit_status include_closure_seal(const struct include_closure *closure, struct source_set *set,
                                 struct source_file **files, kjit_error *error);

void include_closure_finish(struct include_closure *closure);

#endif
