/* Macros and their expansion, as the C++ preprocessor does it: object-like and function-like ones, variadic, # and ##,
 * names that are not expanded again inside their own expansion, push_macro and pop_macro. */
#ifndef KJIT_JIT_SOURCE_MACRO_TABLE_H
#define KJIT_JIT_SOURCE_MACRO_TABLE_H

#include <stdbool.h>
#include <string.h>

#include "base/arena.h"

enum token_kind { TOKEN_NAME, TOKEN_NUMBER, TOKEN_STRING, TOKEN_CHARACTER, TOKEN_MARK };

struct token {
  const char *text; /* in the arena or a source text, not NUL-terminated */
  uint32_t bytes;
  uint8_t kind;
  bool blank;                  /* a blank stands in front */
  const struct hidden *hidden; /* macros that this token must not be expanded by */
  struct token *next;
};

struct macro;

struct macro_table {
  const struct mem *mem;
  struct arena *arena; /* of names, bodies and tokens; the table is useless once it failed */
  struct macro *by_name;
};

/* What an expression asks about headers: does `#include <name>` ("name" when not angled, #include_next when next) find
 * something? */
typedef bool (*macro_has_include)(void *user, const char *name, size_t bytes, bool angled, bool next);

void macro_table_init(struct macro_table *table, const struct mem *mem, struct arena *arena);
void macro_table_finish(struct macro_table *table);

/* The args of a #define: "NAME text" or "NAME(a, b) text". They must live as long as the arena. */
void macro_define(struct macro_table *table, const char *args, size_t bytes);
void macro_undefine(struct macro_table *table, const char *name, size_t bytes);
bool macro_is_defined(const struct macro_table *table, const char *name, size_t bytes);

/* The args of a #pragma push_macro("NAME") or pop_macro("NAME"); others are ignored. */
void macro_pragma(struct macro_table *table, const char *args, size_t bytes);

/* A line as tokens; NULL for none, and when the arena failed. */
struct token *macro_tokens(struct arena *arena, const char *text, size_t bytes);

struct macro_expansion {
  struct macro_table *table;
  macro_has_include has_include; /* NULL: `defined` and __has_include are names like others, as in an #include line */
  void *user;
  uint32_t steps; /* expansions left; then names stay as they are, so that no source can make this run for ever */
};

struct token *macro_expand(struct macro_expansion *expansion, struct token *tokens);

/* Accepts NULL. In the header, because the compiler then knows the length of `text`: a walk through CUB asks this some
 * millions of times. */
static inline bool token_is(const struct token *token, const char *text) {
  return token && token->bytes == strlen(text) && !memcmp(token->text, text, token->bytes);
}

/* For macro_expand.c: the macro of a name, its body read; NULL when it is not defined. */
struct macro_body {
  const char *name;
  bool function_like, variadic;
  uint32_t parameter_count;   /* with the variadic one */
  struct token *parameters;   /* names, linked */
  const struct token *tokens; /* the replacement */
};
const struct macro_body *macro_find(struct macro_table *table, const struct token *name);

/* The operator at `*at` of an #if: `defined`, `__has_include` and the like. Its value, with `*at` behind it; -1 when it
 * is none of them. */
int64_t macro_operator(struct macro_expansion *expansion, struct token **at);

#endif
