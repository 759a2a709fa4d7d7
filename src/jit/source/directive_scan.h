/* The preprocessing directives of a source text that decide what it includes: conditions, defines, includes and
 * `#pragma once`, each as one line without comments and continued lines. Nothing is evaluated here. */
#ifndef KJIT_JIT_SOURCE_DIRECTIVE_SCAN_H
#define KJIT_JIT_SOURCE_DIRECTIVE_SCAN_H

#include <stdbool.h>

#include "base/arena.h"

enum directive_kind {
  DIRECTIVE_INCLUDE,
  DIRECTIVE_INCLUDE_NEXT,
  DIRECTIVE_IF,
  DIRECTIVE_IFDEF,
  DIRECTIVE_IFNDEF,
  DIRECTIVE_ELIF,
  DIRECTIVE_ELIFDEF,
  DIRECTIVE_ELIFNDEF,
  DIRECTIVE_ELSE,
  DIRECTIVE_ENDIF,
  DIRECTIVE_DEFINE,
  DIRECTIVE_UNDEF,
  DIRECTIVE_PRAGMA, /* `once`, `push_macro` or `pop_macro`: other pragmas are left out */
};

struct directive {
  enum directive_kind kind;
  size_t line;       /* of the '#', from 1 */
  size_t begin, end; /* bytes of the text behind the directive's name, to the end of its (continued) line */
  const char
      *args; /* the same, with comments as blanks and lines joined; in the text, or in the arena if they differ */
  size_t args_bytes;
};

struct directive_list {
  struct directive *items; /* in the arena */
  size_t count, capacity;
};

/* False when the arena failed. Any bytes are taken: what is malformed is left to the compiler. */
bool directive_scan(struct directive_list *list, const char *text, size_t bytes, struct arena *arena);

/* <name> or "name" at the start of a directive's args, blanks skipped. `name` and `bytes` are without the marks. False
 * when the args have another form. */
bool directive_header(const char *args, size_t args_bytes, const char **name, size_t *bytes, bool *angled);

#endif
