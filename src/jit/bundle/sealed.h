/* Sealed programs: sources with their include closures, options and names in one read-only file. The written grammar is
 * in cache/README.md.
 *
 *   program = head | index | texts | [signature]
 *
 * The index and the texts are one zstd frame each; a program that was sealed without its texts ends behind the index.
 * The head has the digests of both, so that a signature of the head covers the whole file. It has the size of a
 * bundle's head and is signed as a bundle's is; the magic in it tells the two apart. */
#ifndef KJIT_JIT_BUNDLE_SEALED_H
#define KJIT_JIT_BUNDLE_SEALED_H

#include <stdbool.h>

#include <kjit/build.h>

#include "jit/bundle/bundle_trust.h"
#include "jit/request/request.h"

#define SEALED_MAGIC       "\x89KJP\r\n\x1a\n"
#define SEALED_MAGIC_BYTES 8
#define SEALED_VERSION     1
#define SEALED_INDEX_HEAD  "kjit-program 1\n"

enum sealed_head_offset {
  SEALED_AT_VERSION = 8,       /* u32 */
  SEALED_AT_HEAD_BYTES = 12,   /* u32 */
  SEALED_AT_BODY_BYTES = 16,   /* u64: the file without its signature */
  SEALED_AT_INDEX_PACKED = 24, /* u32 */
  SEALED_AT_INDEX_BYTES = 28,  /* u32: unpacked */
  SEALED_AT_INDEX_DIGEST = 32, /* BLAKE2b-256 of the packed index */
  SEALED_AT_TEXTS_DIGEST = 64, /* BLAKE2b-256 of the packed texts; zeros when there are none */
  SEALED_HEAD_BYTES = 96
};
_Static_assert((int)SEALED_HEAD_BYTES == (int)BUNDLE_HEAD_BYTES, "a program is signed as a bundle is");

/* Tags of the index, in the order in which they stand. */
#define SEALED_TAG_SOURCE   "source" /* repeated, with digest and length: the distinct files */
#define SEALED_TAG_DIGEST   "digest"
#define SEALED_TAG_LENGTH   "length"
#define SEALED_TAG_LABEL    "label" /* begins a unit; repeated with all that follows */
#define SEALED_TAG_TARGET   "target"
#define SEALED_TAG_OPTION   "option" /* repeated */
#define SEALED_TAG_NAME     "name"   /* repeated */
#define SEALED_TAG_PROLOGUE "prologue"
#define SEALED_TAG_ENTRY    "entry" /* repeated */
#define SEALED_TAG_FILES    "files"

/* A closure of 64 MiB for each of a few architectures and sources, which differ little. */
#define SEALED_MAX_BYTES ((size_t)1 << 30)
/* Names and digests of a thousand closures. */
#define SEALED_MAX_INDEX_BYTES ((size_t)64 << 20)
/* The distinct files of all units, and of one. */
#define SEALED_MAX_FILES      ((size_t)1 << 20)
#define SEALED_MAX_UNIT_FILES 4096
#define SEALED_MAX_UNITS      65536

/* One compile: a source for one architecture with one set of defines and options. */
struct sealed_unit {
  const char *label, *prologue;
  struct target target;
  const char **options;
  size_t option_count;
  const char **names;
  size_t name_count;
  const char **entries; /* "" for a module */
  size_t entry_count;
  kjit_define *defines; /* those that the prologue states, for looking up */
  size_t define_count;
  uint32_t *numbers;        /* of its files, main file first */
  struct source_file *list; /* the same without texts */
  struct source_set set;    /* withheld */
};

struct sealed {
  const struct mem *mem;
  char *name;          /* for messages */
  char *copy;          /* of the file; NULL for a program in the caller's memory */
  const uint8_t *data; /* head first */
  size_t bytes;
  char *index;               /* unpacked; the strings below are in `strings` */
  struct source_file *files; /* distinct, without texts */
  size_t file_count;
  size_t texts_bytes; /* unpacked: each file's text with a NUL behind it */
  struct sealed_unit *units;
  size_t unit_count;
  struct sealed_block *blocks; /* memory of everything that the index gave */
};

/* Open a program: a file is read whole, bytes in memory are borrowed. KJIT_ERR_NOT_FOUND, KJIT_ERR_IO,
 * KJIT_ERR_CORRUPT (the message says what is wrong), KJIT_ERR_UNTRUSTED, KJIT_ERR_NO_MEMORY. */
kjit_status sealed_open(struct sealed **out, const struct mem *mem, const char *path, const void *data, size_t bytes,
                        const struct trust *trust, kjit_error *error);
void sealed_close(struct sealed *sealed); /* accepts NULL */

/* Read the unpacked index into files and units (sealed_index.c). NULL when sound; else what is wrong, in static
 * storage; *no_memory is set when that was the reason. */
const char *sealed_index_read(struct sealed *sealed, size_t index_bytes, bool *no_memory);

/* Zeroed memory that ends with the program. NULL: out of memory. */
void *sealed_alloc(struct sealed *sealed, size_t count, size_t size);

bool sealed_has_texts(const struct sealed *sealed);

/* The texts of one unit. */
struct sealed_texts {
  char *memory;             /* mem_free */
  struct source_file *list; /* mem_free */
  struct source_set set;
};

/* Unpack the texts of a unit and compare each with its digest. KJIT_ERR_CORRUPT, KJIT_ERR_NO_MEMORY. Finish it in
 * either case. Thread-safe. */
kjit_status sealed_texts_read(struct sealed_texts *texts, const struct sealed *sealed, const struct sealed_unit *unit,
                              kjit_error *error);
void sealed_texts_finish(struct sealed_texts *texts, const struct mem *mem);

/* Which kernel is wanted of a program. */
struct sealed_wanted {
  const char *entry;          /* an entry or a name of the unit; NULL: the only entry */
  const char *arch;           /* NULL: the best for `capability`, or the only one */
  uint32_t capability;        /* of the device; 0: unknown */
  const kjit_define *defines; /* all of a unit's, in its order; none: whatever was sealed first */
  size_t define_count;
};

/* The unit and the entry. KJIT_ERR_NOT_FOUND says what there is instead; KJIT_ERR_INVALID_ARG when several are meant.
 */
kjit_status sealed_find(const struct sealed *sealed, const struct sealed_wanted *wanted,
                        const struct sealed_unit **unit, const char **entry, kjit_error *error);

#endif
