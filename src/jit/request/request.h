/* A request in the form that the key, the compiler and the cache use. Everything is canonical and nothing optional, so
 * that equal requests are equal in every member. */
#ifndef KJIT_JIT_REQUEST_REQUEST_H
#define KJIT_JIT_REQUEST_REQUEST_H

#include <stdbool.h>

#include <kjit/build.h>

#include "base/target.h"
#include "jit/source/source_set.h"

/* What may be set in a request's flags. */
#define JIT_REQUEST_FLAGS                                                                                              \
  (KJIT_BUILD_RESIDENT_ONLY | KJIT_BUILD_NO_COMPILE | KJIT_BUILD_KEY_ONLY | KJIT_BUILD_OBJECT |                        \
   KJIT_BUILD_STRICT_SOURCES | KJIT_BUILD_NO_TOOLKIT | KJIT_BUILD_KEEP_UNUSED)

/* Those that say what is made. */
#define JIT_REQUEST_OUTPUT_FLAGS (KJIT_BUILD_OBJECT | KJIT_BUILD_KEEP_UNUSED)

/* Compiled code that is an input. */
struct jit_part {
  const char *name; /* for messages */
  uint32_t kind;    /* a kjit_part_kind */
  const void *data; /* the caller's, for the time of the call */
  size_t bytes;
  struct digest digest;
};

/* The word for a kind in keys and messages; "" for none. Static storage. */
const char *jit_part_kind_name(uint32_t kind);

struct jit_request {
  const char *family;      /* "flash_forward"; "custom" for a caller's own source */
  const char *family_file; /* a user's family file, absolute, for records; NULL: none. Not part of the key. */
  bool is_users;           /* of a user's family: kjit's own have no file either */
  bool keeps_texts;        /* a caller's own source: its texts are kept (text_store.h). Not part of the key. */
  bool has_no_line;        /* no words of a manifest stand for it, so it is recorded with its sources: it has a header
                            * that was generated, or its family has no fields. Not part of the key. */
  bool publishes_later;    /* the caller does not wait until the kernel is in the cache. Not part of the key. */
  const char *label;       /* for people: the short form, or the source's name. Not part of the key. */
  struct target target;
  const char *entry;        /* name in the cubin, or one of `names`; "": none */
  const char *const *names; /* name expressions that the compiler is asked about */
  size_t name_count;
  const char *prologue;             /* "#define …\n" lines, then a #line that names the main file */
  const struct source_set *sources; /* without a file when there are parts alone */
  const struct jit_part *parts;
  size_t part_count;
  const char *const *options; /* beyond the standing ones; canonical order */
  size_t option_count;
  uint32_t flags;        /* KJIT_BUILD_* */
  const char *main_path; /* the file whose text the main file is; NULL or "": not known. Not part of the key. */
  int64_t includes_ns;   /* spent on reading the sources and what they include. Not part of the key. */
  uint32_t timeout_ms;   /* 0: none */
  int64_t begun_ns;      /* monotonic time from which timeout_ms counts; 0: from when the builder is asked */
  kjit_stop_fn stop;     /* NULL: never */
  void *stop_user;
  /* Where the sources are withheld: called before a compile, gives the same set with its texts, or fails with
   * KJIT_ERR_CANCELLED when they are no longer the same. NULL: there are no texts to be had. */
  kjit_status (*supply)(void *user, const struct source_set **sources, kjit_error *error);
  void *supply_user;
};

#endif
