/* What the walk (include_closure.c) and the writing of what it found (include_rewrite.c) share. */
#ifndef KJIT_JIT_SOURCE_INCLUDE_CLOSURE_INTERNAL_H
#define KJIT_JIT_SOURCE_INCLUDE_CLOSURE_INTERNAL_H

#include <stdbool.h>

#include "base/table.h"
#include "jit/source/condition.h"
#include "jit/source/directive_scan.h"
#include "jit/source/include_find.h"

/* All of CUDA 13.0's own headers are 1,982 files and 24 MB. */
#define CLOSURE_FILE_LIMIT  4096
#define CLOSURE_BYTES_LIMIT ((size_t)64 << 20)

/* As deep as C compilers let includes nest. */
#define CLOSURE_DEPTH_LIMIT 200

/* Tokens and directives of CUB, the largest library met, take 30 MB. */
#define CLOSURE_ARENA_LIMIT ((size_t)1 << 30)

#define HEADER_NAME_LIMIT 1024

struct node;

/* A file's bytes. Two paths that lead to one file share them, and its `#pragma once`. */
struct content {
  const char *text; /* NUL-terminated */
  size_t bytes;
  struct file_stamp stamp; /* kind FILE_STAMP_NONE for a text in memory */
  struct digest digest;    /* of a file on disk */
  struct directive_list directives;
  struct node *first; /* the first path by which it was read */
  bool once;          /* its `#pragma once` was reached */
  char *owned;        /* the text: mem_free */
  const char *given;  /* the text of a header in memory, where the caller has it */
  struct content *next;
  uint64_t file[2]; /* device and inode */
  UT_hash_handle hh;
};

/* Where a directive led when the walk came to it. */
enum outcome_kind { OUTCOME_UNREACHED, OUTCOME_READ, OUTCOME_VARIES, OUTCOME_MISSING };
struct outcome {
  enum outcome_kind kind;
  struct node *node;
  const char *name; /* as written, or as a macro gave it */
};

/* A file under one path: what its includes mean depends on that. */
struct node {
  const char *path; /* as messages show it */
  const char *name; /* for the compiler, unlike any other node's */
  enum include_kind kind;
  size_t folder;
  struct content *content;
  struct outcome *outcomes; /* one for each directive */
  bool certain;             /* every compile reads it */
  bool read;                /* the compiler is given it */
  char *rewritten;          /* mem_free; NULL where the text is as it was */
  size_t rewritten_bytes;
  struct node *next;
};

/* A name that the compiler asks for as written, because a macro wrote it. */
struct alias {
  const char *name;
  struct node *node; /* NULL: only __has_include asks for it */
  const char *text;  /* what the compiler is given under the name */
  size_t text_bytes;
};

struct level {
  bool outer, active, taken, certain;
};

struct closure {
  const struct mem *mem;
  struct arena arena;
  struct include_finder finder;
  struct macro_table macros;
  const struct include_terms *terms;
  struct node *main, **last_node;
  size_t node_count;
  struct content *contents, *by_file;
  struct alias_entry *aliases;
  size_t alias_count;
  struct node_entry *by_path, *by_name;
  struct level *levels;
  size_t level_count, level_capacity;
  size_t bytes;
  struct node *node; /* the file that the walk is in, and its line */
  size_t line, depth;
  kjit_status status; /* the first failure */
  kjit_error *error;
};

/* Remember a failure; the first stays. */
void closure_fail(struct closure *closure, kjit_status status);
bool closure_has_failed(struct closure *closure); /* also when the arena did */
/* "main.cu:3: #include x: <what>". */
void closure_refuse(struct closure *closure, const char *name, kjit_status status, const char *what);

struct node *closure_find_name(const struct closure *closure, const char *name);
/* Give a file a further name, because the compiler finds a header in memory only by the name in the directive. */
void closure_add_alias(struct closure *closure, const char *name, struct node *node);
void closure_each_alias(struct closure *closure, void (*act)(struct closure *closure, struct alias *alias));
/* The aliases, in the order in which they were added. */
size_t closure_aliases(struct closure *closure, struct alias *aliases);

/* The file that a name leads to; NULL when that is nowhere, or something failed. */
struct node *closure_resolve(struct closure *closure, struct node *from, const char *name, bool angled, bool next);

/* Follow the source's directives, from its first line on. */
void closure_walk(struct closure *closure);

struct include_from closure_from(const struct node *node);

/* Give every node that the compiler is given its final text. */
void closure_rewrite(struct closure *closure);

#endif
