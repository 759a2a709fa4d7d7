/* A kernel's sources: the main file first, then every header of its include closure, by repo-relative name. */
#ifndef KJIT_JIT_SOURCE_SOURCE_SET_H
#define KJIT_JIT_SOURCE_SOURCE_SET_H

#include <stdbool.h>

#include "base/digest.h"
#include "base/mem.h"
#include "base/threads/push.h"

struct source_file {
  const char *name; /* as in #include, relative */
  const char *path; /* as messages show it; NULL: the name */
  const char *text; /* NUL-terminated */
  size_t bytes;
  struct digest digest; /* of the text */
};

struct source_set {
  const struct source_file *files; /* [0] is the main file; the rest sorted by name */
  size_t count;
  struct digest digest; /* of all names and digests: computed once */
  bool withheld; /* the names and digests are right, the texts are not there: keys can be made, nothing compiled */
};

/* The closures of embedded kernels, each unpacked when it is first asked for and kept until the end. */
struct source_shelf {
  const struct mem *mem;
  struct push_list sets; /* struct shelved_set */
};

void source_shelf_init(struct source_shelf *shelf, const struct mem *mem);
void source_shelf_finish(struct source_shelf *shelf); /* no thread may use its sets any more; accepts all zero */

/* The closure of an embedded kernel ("flash_forward/flash_forward.cu"), borrowed from the shelf. KJIT_ERR_UNSUPPORTED
 * when the library was built without it; KJIT_ERR_NO_MEMORY. Thread-safe; a few loads after the first call. */
kjit_status source_shelf_get(struct source_shelf *shelf, const char *main_name, const struct source_set **out,
                             kjit_error *error);

/* Complete a set whose files have name, text and bytes: sort all but the first by name, compute every digest that is
 * not there yet (all zero). False when out of memory. */
bool source_set_seal(struct source_set *set, struct source_file *files, size_t count, const struct mem *mem);

#endif
