/* Macros by name, and lines as tokens. A macro's body is read when it is first used, because most of the tens of
 * thousands that CUDA's headers define never are. One table belongs to one thread. */
#include "jit/source/macro_table.h"

#include <string.h>

#include "base/table.h"

/* A macro's definition, in a list with those that push_macro put aside. */
struct definition {
  const char *args; /* behind the name */
  size_t bytes;
  struct macro_body *body; /* NULL until it is used */
  struct definition *pushed;
};

struct macro {
  UT_hash_handle hh;
  const char *name;
  struct definition *current; /* NULL: not defined */
  struct definition *stack;   /* of push_macro, the newest first; `args` NULL: it was not defined then */
};

static bool is_word(int c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
         c >= 0x80;
}
static bool is_digit(int c) {
  return c >= '0' && c <= '9';
}
static bool is_blank(int c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

void macro_table_init(struct macro_table *table, const struct mem *mem, struct arena *arena) {
  *table = (struct macro_table){.mem = mem, .arena = arena};
}

void macro_table_finish(struct macro_table *table) {
  const struct mem *mem = table->mem;
  HASH_CLEAR(hh, table->by_name);
}

static struct macro *find(const struct macro_table *table, const char *name, size_t bytes) {
  struct macro *macro = NULL;
  HASH_FIND(hh, table->by_name, name, bytes, macro);
  return macro;
}

static struct macro *find_or_add(struct macro_table *table, const char *name, size_t bytes) {
  const struct mem *mem = table->mem;
  bool added = true;
  struct macro *macro = find(table, name, bytes);
  if (macro) return macro;
  macro = arena_alloc(table->arena, sizeof *macro);
  if (!macro) return NULL;
  macro->name = arena_copy(table->arena, name, bytes);
  if (!macro->name) return NULL;
  HASH_ADD_KEYPTR(hh, table->by_name, macro->name, bytes, macro);
  if (!added) table->arena->failed = true;
  return table->arena->failed ? NULL : macro;
}

static size_t skip_blanks(const char *text, size_t bytes, size_t at) {
  while (at < bytes && is_blank((unsigned char)text[at]))
    at++;
  return at;
}

static size_t skip_word(const char *text, size_t bytes, size_t at) {
  while (at < bytes && is_word((unsigned char)text[at]))
    at++;
  return at;
}

/* A definition replaces the one before without a comparison: what a compiler would warn of makes no difference for
 * which files are included. */
void macro_define(struct macro_table *table, const char *args, size_t bytes) {
  const size_t start = skip_blanks(args, bytes, 0), end = skip_word(args, bytes, start);
  struct macro *macro = end > start ? find_or_add(table, args + start, end - start) : NULL;
  struct definition *made = macro ? arena_alloc(table->arena, sizeof *made) : NULL;
  if (!made) return;
  made->args = args + end;
  made->bytes = bytes - end;
  macro->current = made;
}

void macro_undefine(struct macro_table *table, const char *name, size_t bytes) {
  const size_t start = skip_blanks(name, bytes, 0), end = skip_word(name, bytes, start);
  struct macro *macro = find(table, name + start, end - start);
  if (macro) macro->current = NULL;
}

bool macro_is_defined(const struct macro_table *table, const char *name, size_t bytes) {
  const struct macro *macro = find(table, name, bytes);
  return macro && macro->current;
}

/* A name that is not defined is pushed too, with `args` NULL, because pop_macro then undefines it again. */
static void push(struct macro_table *table, struct macro *macro) {
  struct definition *saved = arena_alloc(table->arena, sizeof *saved);
  if (!saved) return;
  if (macro->current) *saved = *macro->current;
  saved->pushed = macro->stack;
  macro->stack = saved;
}

/* push_macro and pop_macro are common in system headers. Without them a guard that a header sets aside and restores
 * would be lost, and the walk would take other branches than the compiler. */
void macro_pragma(struct macro_table *table, const char *args, size_t bytes) {
  const size_t start = skip_blanks(args, bytes, 0), end = skip_word(args, bytes, start);
  const bool pushes = end - start == 10 && !memcmp(args + start, "push_macro", 10);
  const bool pops = end - start == 9 && !memcmp(args + start, "pop_macro", 9);
  const char *open = memchr(args + end, '"', bytes - end);
  const char *close = open ? memchr(open + 1, '"', bytes - (size_t)(open + 1 - args)) : NULL;
  if ((!pushes && !pops) || !close) return;
  struct macro *macro = find_or_add(table, open + 1, (size_t)(close - open - 1));
  if (!macro) return;
  if (pushes) {
    push(table, macro);
  } else if (macro->stack) {
    macro->current = macro->stack->args ? macro->stack : NULL;
    macro->stack = macro->stack->pushed;
  }
}

/* -- Tokens ------------------------------------------------------------------------------------------------------- */

/* From an opening quote: the offset behind the closing one, or the end. */
static size_t skip_quoted(const char *text, size_t bytes, size_t at) {
  const char quote = text[at++];
  while (at < bytes && text[at] != quote)
    at += text[at] == '\\' && at + 1 < bytes ? 2 : 1;
  return at < bytes ? at + 1 : bytes;
}

/* A preprocessing number takes letters, points, digit separators, and signs behind an exponent. */
static size_t skip_number(const char *text, size_t bytes, size_t at) {
  for (; at < bytes; at++) {
    const char c = text[at];
    const bool sign = (c == '+' || c == '-') && at && strchr("eEpP", text[at - 1]);
    const bool separator = c == '\'' && at + 1 < bytes && is_word((unsigned char)text[at + 1]);
    if (!is_word((unsigned char)c) && c != '.' && !sign && !separator) break;
  }
  return at;
}

/* The longest marks come first in the list, so that "<<=" is one token. */
static size_t skip_mark(const char *text, size_t bytes, size_t at) {
  static const char *const marks[] = {
      "<=>", "...", "<<=", ">>=", "##", "&&", "||", "==", "!=", "<=", ">=", "<<", ">>", "::", "->"};
  if (!strchr("<.>#&|=!:-", text[at])) return at + 1;
  for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
    const size_t length = strlen(marks[i]);
    if (length <= bytes - at && !memcmp(text + at, marks[i], length)) return at + length;
  }
  return at + 1;
}

static size_t skip_token(const char *text, size_t bytes, size_t at, uint8_t *kind) {
  const unsigned char c = (unsigned char)text[at];
  if (is_digit(c) || (c == '.' && at + 1 < bytes && is_digit((unsigned char)text[at + 1]))) {
    *kind = TOKEN_NUMBER;
    return skip_number(text, bytes, at);
  }
  if (is_word(c)) {
    *kind = TOKEN_NAME;
    return skip_word(text, bytes, at);
  }
  *kind = c == '"' ? TOKEN_STRING : c == '\'' ? TOKEN_CHARACTER : TOKEN_MARK;
  return *kind == TOKEN_MARK ? skip_mark(text, bytes, at) : skip_quoted(text, bytes, at);
}

struct token *macro_tokens(struct arena *arena, const char *text, size_t bytes) {
  struct token *first = NULL, **last = &first;
  for (size_t at = 0;;) {
    const size_t start = skip_blanks(text, bytes, at);
    if (start >= bytes) return arena->failed ? NULL : first;
    struct token *token = arena_alloc(arena, sizeof *token);
    if (!token) return NULL;
    token->blank = start > at;
    at = skip_token(text, bytes, start, &token->kind);
    token->text = text + start;
    token->bytes = (uint32_t)(at - start);
    *last = token;
    last = &token->next;
  }
}

/* -- Bodies ------------------------------------------------------------------------------------------------------- */

/* Read the parameters "(a, b, ...)" at the front of the tokens. Returns the rest, which is the body. */
static struct token *read_parameters(struct macro_body *body, struct token *token, struct arena *arena) {
  struct token **last = &body->parameters;
  body->function_like = true;
  for (token = token->next; token && !token_is(token, ")"); token = token->next) {
    if (token_is(token, ",")) continue;
    struct token *parameter = NULL;
    if (token_is(token, "...")) {
      body->variadic = true;
      parameter = arena_alloc(arena, sizeof *parameter);
      if (!parameter) return NULL;
      *parameter = (struct token){.text = "__VA_ARGS__", .bytes = 11, .kind = TOKEN_NAME};
    } else {
      parameter = arena_alloc(arena, sizeof *parameter);
      if (!parameter) return NULL;
      *parameter = *token;
      parameter->next = NULL;
      /* GNU's "name..." is a variadic parameter with a name of its own. */
      if (token_is(token->next, "...")) {
        body->variadic = true;
        token = token->next;
      }
    }
    *last = parameter;
    last = &parameter->next;
    body->parameter_count++;
  }
  return token ? token->next : NULL;
}

/* A "(" directly behind the name makes a macro that takes arguments; behind a blank it belongs to the body. */
const struct macro_body *macro_find(struct macro_table *table, const struct token *name) {
  struct macro *macro = find(table, name->text, name->bytes);
  struct definition *current = macro ? macro->current : NULL;
  if (!current || current->body) return current ? current->body : NULL;
  struct macro_body *body = arena_alloc(table->arena, sizeof *body);
  if (!body) return NULL;
  struct token *tokens = macro_tokens(table->arena, current->args, current->bytes);
  body->name = macro->name;
  if (token_is(tokens, "(") && !tokens->blank) tokens = read_parameters(body, tokens, table->arena);
  body->tokens = tokens;
  current->body = body;
  return body;
}
