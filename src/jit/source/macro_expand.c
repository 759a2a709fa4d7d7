/* Expansion of a list of tokens, by Prosser's algorithm: every token carries the set of macros that it came out of, and
 * is not expanded by those again. Tokens are made in the table's arena and never changed once they are in a list that
 * somebody else holds, because bodies and arguments are used many times. */
#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "jit/source/macro_table.h"

/* Most arguments of a macro call: more than any library passes. A call with more is left as it stands. */
#define ARGUMENT_LIMIT 256

struct hidden {
  const char *name; /* the macro's name; its address identifies the macro */
  const struct hidden *next;
};

struct list {
  struct token *first, **last;
};

struct call {
  const struct macro_body *body;
  size_t count;
  struct token *arguments[ARGUMENT_LIMIT]; /* `count` of them; the others are not set, because that takes long */
};

static void append(struct list *list, struct token *token) {
  *list->last = token;
  if (token) list->last = &token->next;
}

static struct token *copy_token(struct arena *arena, const struct token *token) {
  struct token *copy = arena_alloc(arena, sizeof *copy);
  if (!copy) return NULL;
  *copy = *token;
  copy->next = NULL;
  return copy;
}

static void append_copies(struct list *list, struct arena *arena, const struct token *token) {
  for (; token && !arena->failed; token = token->next)
    append(list, copy_token(arena, token));
}

static bool is_hidden(const struct hidden *hidden, const char *name) {
  for (; hidden; hidden = hidden->next)
    if (hidden->name == name) return true;
  return false;
}

static const struct hidden *hide(struct arena *arena, const struct hidden *hidden, const char *name) {
  struct hidden *more = is_hidden(hidden, name) ? NULL : arena_alloc(arena, sizeof *more);
  if (!more) return hidden;
  *more = (struct hidden){name, hidden};
  return more;
}

static const struct hidden *intersect(struct arena *arena, const struct hidden *a, const struct hidden *b) {
  const struct hidden *both = NULL;
  for (; a; a = a->next)
    if (is_hidden(b, a->name)) both = hide(arena, both, a->name);
  return both;
}

static void hide_all(struct arena *arena, struct token *token, const struct hidden *hidden) {
  for (; token; token = token->next)
    for (const struct hidden *name = hidden; name; name = name->next)
      token->hidden = hide(arena, token->hidden, name->name);
}

/* Read the arguments behind a macro's name. `*at` is at the "(" and ends behind the ")". False when there is no end. */
static bool read_arguments(struct call *call, struct arena *arena, struct token **at, const struct hidden **end) {
  size_t depth = 0;
  struct list list = {NULL, &call->arguments[0]};
  assert(*at);
  call->count = 1;
  call->arguments[0] = NULL;
  for (struct token *token = (*at)->next; token; token = token->next) {
    if (token_is(token, ")") && depth-- == 0) {
      *end = token->hidden;
      *at = token->next;
      return true;
    }
    if (token_is(token, "(")) depth++;
    const bool rest = call->body->variadic && call->count == call->body->parameter_count;
    if (token_is(token, ",") && depth == 0 && !rest) {
      if (call->count == ARGUMENT_LIMIT) return false;
      call->arguments[call->count] = NULL;
      list.last = &call->arguments[call->count++];
      continue;
    }
    append(&list, copy_token(arena, token));
    if (arena->failed) return false;
  }
  return false;
}

/* Find the argument of a parameter. False when the name is no parameter. */
static bool find_argument(const struct call *call, const struct token *name, struct token **argument) {
  size_t i = 0;
  if (name->kind != TOKEN_NAME) return false;
  for (const struct token *parameter = call->body->parameters; parameter; parameter = parameter->next, i++) {
    if (parameter->bytes != name->bytes || memcmp(parameter->text, name->text, name->bytes) != 0) continue;
    *argument = i < call->count ? call->arguments[i] : NULL;
    return true;
  }
  return false;
}

/* Turn an argument into a string (#parameter). Quotes inside are not escaped, because strings matter here only as names
 * of headers. */
static struct token *stringize(struct arena *arena, const struct token *argument) {
  size_t bytes = 2;
  for (const struct token *token = argument; token; token = token->next)
    bytes += token->bytes + 1;
  char *text = arena_alloc(arena, bytes + 1);
  struct token *made = arena_alloc(arena, sizeof *made);
  if (!text || !made) return NULL;
  size_t length = 0;
  text[length++] = '"';
  for (const struct token *token = argument; token; token = token->next) {
    if (token->blank && token != argument) text[length++] = ' ';
    memcpy(text + length, token->text, token->bytes);
    length += token->bytes;
  }
  text[length++] = '"';
  *made = (struct token){.text = text, .bytes = (uint32_t)length, .kind = TOKEN_STRING};
  return made;
}

/* What left ## right makes. */
static struct token *paste(struct arena *arena, const struct token *left, const struct token *right) {
  const size_t bytes = (size_t)left->bytes + right->bytes;
  char *text = arena_alloc(arena, bytes + 1);
  if (!text) return NULL;
  memcpy(text, left->text, left->bytes);
  memcpy(text + left->bytes, right->text, right->bytes);
  struct token *made = macro_tokens(arena, text, bytes);
  if (!made) return NULL;
  made->blank = left->blank;
  made->hidden = intersect(arena, left->hidden, right->hidden);
  return made;
}

/* Paste the tokens of `right` to what the list ends in. */
static void paste_to(struct list *list, struct arena *arena, const struct token *right) {
  struct token **end = &list->first;
  if (!right) return;
  while (*end && (*end)->next)
    end = &(*end)->next;
  if (*end) {
    struct token *made = paste(arena, *end, right);
    *end = NULL;
    list->last = end;
    append(list, made);
    while (made && made->next)
      append(list, made = made->next);
  } else {
    append(list, copy_token(arena, right));
  }
  append_copies(list, arena, right->next);
}

/* Read __VA_OPT__(text), which is its text when there are variadic arguments. `*at` is at the name, and ends at the
 * ")". */
static struct token *read_va_opt(const struct call *call, struct arena *arena, const struct token **at) {
  static const struct token variadic = {.text = "__VA_ARGS__", .bytes = 11, .kind = TOKEN_NAME};
  struct list list = {NULL, &list.first};
  struct token *rest = NULL;
  size_t depth = 0;
  assert((*at)->next);
  const struct token *token = (*at)->next->next;
  for (; token && !(token_is(token, ")") && depth == 0); token = token->next) {
    if (token_is(token, "(")) depth++;
    if (token_is(token, ")")) depth--;
    append(&list, copy_token(arena, token));
    if (arena->failed) return NULL;
  }
  while (*at != token && (*at)->next)
    *at = (*at)->next;
  return find_argument(call, &variadic, &rest) && rest ? list.first : NULL;
}

/* The order matters: operands of # and ## are taken as written, all other arguments are expanded first. That is the
 * difference between NAME(x) and its value that token pasting relies on. */
static void substitute_into(struct macro_expansion *expansion, struct list *out, const struct call *call,
                            const struct token *token) {
  struct arena *arena = expansion->table->arena;
  for (; token && !arena->failed; token = token->next) {
    struct token *argument = NULL;
    if (token_is(token, "#") && call->body->function_like && token->next &&
        find_argument(call, token->next, &argument)) {
      append(out, stringize(arena, argument));
      token = token->next;
    } else if (token_is(token, "##") && token->next) {
      token = token->next;
      if (!find_argument(call, token, &argument)) argument = copy_token(arena, token);
      paste_to(out, arena, argument);
    } else if (call->body->variadic && token_is(token, "__VA_OPT__") && token_is(token->next, "(")) {
      substitute_into(expansion, out, call, read_va_opt(call, arena, &token));
    } else if (find_argument(call, token, &argument)) {
      struct list plain = {NULL, &plain.first};
      append_copies(&plain, arena, argument);
      struct token *whole = token_is(token->next, "##") ? plain.first : macro_expand(expansion, plain.first);
      for (struct token *next; whole; whole = next) {
        next = whole->next;
        append(out, whole);
      }
    } else {
      append(out, copy_token(arena, token));
    }
  }
}

/* The replacement list of a macro with its arguments filled in. */
static struct token *substitute(struct macro_expansion *expansion, const struct call *call,
                                const struct hidden *hidden) {
  struct list out = {NULL, &out.first};
  substitute_into(expansion, &out, call, call->body->tokens);
  *out.last = NULL;
  hide_all(expansion->table->arena, out.first, hidden);
  return out.first;
}

/* Replace the macro call that `token` begins. Returns the new tokens with what follows them, or NULL when it is no
 * call. */
static struct token *replace(struct macro_expansion *expansion, struct token *token) {
  struct arena *arena = expansion->table->arena;
  struct call call;
  const struct hidden *hidden = token->hidden, *end = NULL;
  call.body = macro_find(expansion->table, token);
  call.count = 0;
  if (!call.body || is_hidden(hidden, call.body->name) || !expansion->steps) return NULL;
  expansion->steps--;
  struct token *rest = token->next;
  if (call.body->function_like) {
    if (!token_is(rest, "(") || !read_arguments(&call, arena, &rest, &end)) return NULL;
    hidden = intersect(arena, hidden, end);
  }
  struct list list = {substitute(expansion, &call, hide(arena, hidden, call.body->name)), NULL};
  list.last = &list.first;
  while (*list.last)
    list.last = &(*list.last)->next;
  *list.last = rest;
  /* An empty expansion at the end must differ from NULL, which means that nothing was replaced. */
  if (list.first) return list.first;
  struct token *nothing = arena_alloc(arena, sizeof *nothing);
  if (nothing) *nothing = (struct token){.text = "", .kind = TOKEN_MARK};
  return nothing;
}

/* A replacement is scanned again together with what follows it, so the loop goes on at its first token. Names that
 * are being expanded are hidden, and `steps` bounds the whole, so that no text can keep it busy for ever. */
struct token *macro_expand(struct macro_expansion *expansion, struct token *tokens) {
  struct list out = {NULL, &out.first};
  struct arena *arena = expansion->table->arena;
  while (tokens && !arena->failed) {
    struct token *token = tokens;
    if (token->kind == TOKEN_NAME) {
      const int64_t value = expansion->has_include ? macro_operator(expansion, &tokens) : -1;
      if (value >= 0) {
        struct token *number = arena_alloc(arena, sizeof *number);
        if (!number) break;
        *number = (struct token){.text = value ? "1" : "0", .bytes = 1, .kind = TOKEN_NUMBER, .blank = token->blank};
        append(&out, number);
        continue;
      }
      struct token *replaced = replace(expansion, token);
      if (replaced) {
        replaced->blank = token->blank;
        tokens = replaced;
        continue;
      }
    }
    tokens = token->next;
    if (token->bytes) append(&out, token);
  }
  *out.last = NULL;
  return arena->failed ? NULL : out.first;
}
