/* Every file that a compile of a caller's source reads, with its text: what the key covers and all that the compiler
 * sees. include_closure.c says how it is found. */
#ifndef KJIT_JIT_SOURCE_INCLUDE_CLOSURE_H
#define KJIT_JIT_SOURCE_INCLUDE_CLOSURE_H

#include <stdbool.h>

#include <kjit/build.h>

#include "jit/source/include_terms.h"
#include "jit/source/source_set.h"

struct include_closure {
  const struct mem *mem;
  struct closure *state; /* private */
};

/* Collect the closure of `source` (`bytes` set, no NUL in it).
 * KJIT_ERR_NOT_FOUND    an #include that every compile would read is nowhere: the error has file, line and name
 * KJIT_ERR_INVALID_ARG  a NUL in a file, or more than 4096 files, 64 MiB or 200 levels
 * KJIT_ERR_UNSUPPORTED  one computed #include that means two files of one name
 * KJIT_ERR_CANCELLED    terms->stop said so
 * KJIT_ERR_IO, KJIT_ERR_NO_MEMORY
 * Finish it in every case. */
kjit_status include_closure_collect(struct include_closure *closure, const struct mem *mem,
                                    const struct include_search *search, const struct include_terms *terms,
                                    const kjit_source *source, kjit_error *error);

/* The files as a sealed set, in memory of the closure's mem (mem_free(files)); it points into the closure. */
kjit_status include_closure_seal(struct include_closure *closure, struct source_set *set, struct source_file **files,
                                 kjit_error *error);

/* The files that were read (stamp.kind FILE_STAMP_FILE) and the folders where a name was looked for and was not. While
 * their stamps are the same, another collection would give the same set. In the closure's memory. False when out of it.
 */
bool include_closure_watches(const struct include_closure *closure, const struct include_watch **watches,
                             size_t *count);

void include_closure_finish(struct include_closure *closure);

#endif
