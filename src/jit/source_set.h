/* A kernel's sources: the main file first, then every header of its include closure, by repo-relative name. */
#ifndef KJIT_JIT_SOURCE_SET_H
#define KJIT_JIT_SOURCE_SET_H

#include "base/digest.h"
#include "base/mem.h"

struct source_file {
  const char *name; /* as in #include, relative */
  const char *text; /* NUL-terminated */
  size_t bytes;
  struct digest digest; /* of the text */
};

struct source_set {
  const struct source_file *files; /* [0] is the main file; the rest sorted by name */
  size_t count;
  struct digest digest; /* of all names and digests: computed once */
  _Bool withheld; /* the names and digests are right, the texts are not there: keys can be made, nothing compiled */
};

/* The closure of an embedded kernel ("flash_forward/flash_forward.cu"), computed once per process, static storage.
 * NULL when the library was built without it, or when there is no memory for its table. Thread-safe. */
const struct source_set *source_set_embedded(const char *main_name);

/* Complete a set whose files have name, text and bytes: sort all but the first by name, compute every digest that is
 * not there yet (all zero). False when out of memory. */
_Bool source_set_seal(struct source_set *set, struct source_file *files, size_t count, const struct mem *mem);

#endif
