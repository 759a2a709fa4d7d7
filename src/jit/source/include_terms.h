/* What a collection of includes is asked with, and what it depends on. */
#ifndef KJIT_JIT_SOURCE_INCLUDE_TERMS_H
#define KJIT_JIT_SOURCE_INCLUDE_TERMS_H

#include <stdbool.h>

#include <kjit/build.h>

#include "base/digest.h"
#include "base/files/file.h"
#include "base/target.h"

/* An include that the walk did not reach is given to the compiler under a name that begins so and is nowhere. A
 * compiler that asks for one took another branch than the walk: then `everything` helps. */
#define INCLUDE_UNREAD "kjit-unread:"

/* Where headers come from, in this order: by name among the headers in memory; of a quoted one, beside the including
 * file; in the folders; among the library's own stand-ins for C++'s standard headers. */
struct include_search {
  const kjit_source *headers; /* names distinct, texts without NUL, `bytes` set */
  size_t header_count;
  const char *const *dirs;
  size_t dir_count;
  bool no_shims;
};

/* The inputs that decide #if conditions besides the texts: options and target set the macros that NVRTC predefines. */
struct include_terms {
  const char *prologue;        /* lines in front of the source; NULL: none */
  const struct target *target; /* NULL: none is known */
  const char *const *options;
  size_t option_count;
  unsigned cuda_version;    /* 13000 for 13.0; 0: not known */
  bool open_ended;          /* the toolkit's folder is not known yet: an <include> that is nowhere is passed over */
  bool everything;          /* follow each literal #include of each file, whatever #if it stands under */
  bool (*stop)(void *user); /* asked in every file and every few hundred directives; true: give up; NULL: never */
  void *stop_user;
};

/* A file or folder that the closure depends on. */
struct include_watch {
  const char *path;
  struct file_stamp stamp;
  struct digest digest; /* of a file's content */
};

#endif
