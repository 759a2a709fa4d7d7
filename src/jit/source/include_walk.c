/* The walk through a source's directives, as its preprocessor goes: what is defined, which branches hold, where each
 * #include leads. include_closure.c says what it is for. Nothing but directives is looked at, because text between them
 * cannot change what is included. One walk belongs to one thread. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "jit/source/include_closure_internal.h"

/* Most macro expansions in one walk: fifty times as many as in the largest library that was tried. */
#define EXPANSION_LIMIT 50000000u

static void walk(struct closure *closure, struct node *node);

static bool has_include(void *user, const char *name, size_t bytes, bool angled, bool next) {
  struct closure *closure = user;
  char text[HEADER_NAME_LIMIT];
  if (bytes >= sizeof text) return false;
  memcpy(text, name, bytes);
  text[bytes] = '\0';
  const struct include_from from = closure_from(closure->node);
  if (!include_exists(&closure->finder, &from, text, angled, next)) return false;
  closure_add_alias(closure, text, NULL);
  return true;
}

static bool is_true(struct closure *closure, const struct directive *directive) {
  struct macro_expansion expansion = {&closure->macros, has_include, closure, EXPANSION_LIMIT};
  return condition_holds(&expansion, directive->args, directive->args_bytes);
}

static bool names_macro(const struct closure *closure, const struct directive *directive) {
  const struct token *token = macro_tokens(closure->macros.arena, directive->args, directive->args_bytes);
  return token && macro_is_defined(&closure->macros, token->text, token->bytes);
}

/* Expand a computed name: the tokens become "name", or <, tokens and >. */
static bool expand_name(struct closure *closure, const struct directive *directive, char name[HEADER_NAME_LIMIT],
                        bool *angled) {
  struct macro_expansion expansion = {.table = &closure->macros, .steps = EXPANSION_LIMIT};
  const struct token *token =
      macro_expand(&expansion, macro_tokens(&closure->arena, directive->args, directive->args_bytes));
  size_t length = 0;
  *angled = token_is(token, "<");
  if (token && token->kind == TOKEN_STRING && token->bytes > 2) {
    length = token->bytes - 2;
    if (length < HEADER_NAME_LIMIT) memcpy(name, token->text + 1, length);
  } else if (token && *angled) {
    for (token = token->next; token && !token_is(token, ">"); token = token->next) {
      if (length + token->bytes + 1 >= HEADER_NAME_LIMIT) return false;
      if (token->blank && length) name[length++] = ' ';
      memcpy(name + length, token->text, token->bytes);
      length += token->bytes;
    }
    if (!token) return false;
  }
  if (!length || length >= HEADER_NAME_LIMIT) return false;
  name[length] = '\0';
  return true;
}

/* An #include that led nowhere. It is an error only when every compile reads it; otherwise the compiler may never get
 * there, and reports it if it does. */
static void miss(struct closure *closure, const char *name, bool angled, bool certain) {
  char written[HEADER_NAME_LIMIT + 2];
  if (!certain || (angled && closure->terms->open_ended)) return;
  if (closure->finder.withheld) {
    closure_refuse(closure, name, KJIT_ERR_UNSUPPORTED,
                   "this library was built without its kernel sources (KJIT_EMBED_SOURCES=OFF): add a folder that has "
                   "this header to include_dirs");
    return;
  }
  (void)snprintf(written, sizeof written, angled ? "<%s>" : "\"%s\"", name);
  closure_refuse(closure, written, KJIT_ERR_NOT_FOUND,
                 closure->finder.search->dir_count ? "neither among the headers given nor in a folder of include_dirs"
                                                   : "not among the headers given, and there are no include_dirs");
}

/* Note where a directive led. A computed name may lead elsewhere each time the file is read; then the directive stays
 * as it is, and each name leads to its file. */
static void note_outcome(struct closure *closure, struct outcome *outcome, struct node *found, const char *name) {
  if (outcome->kind == OUTCOME_UNREACHED) {
    *outcome = (struct outcome){found ? OUTCOME_READ : OUTCOME_MISSING, found,
                                arena_copy(&closure->arena, name, strlen(name))};
    return;
  }
  if (outcome->node == found && outcome->kind != OUTCOME_VARIES) return;
  if (outcome->kind == OUTCOME_READ) closure_add_alias(closure, outcome->name, outcome->node);
  outcome->kind = OUTCOME_VARIES;
  if (found) closure_add_alias(closure, name, found);
}

/* Follow one #include: find its name, then its file, and walk that. */
static void include(struct closure *closure, struct node *node, size_t index, bool certain) {
  const struct directive *directive = &node->content->directives.items[index];
  struct outcome *outcome = &node->outcomes[index];
  const char *text;
  size_t bytes;
  bool angled;
  char name[HEADER_NAME_LIMIT];
  const bool literal = directive_header(directive->args, directive->args_bytes, &text, &bytes, &angled);
  if (literal && bytes < sizeof name) {
    memcpy(name, text, bytes);
    name[bytes] = '\0';
  } else if (literal || !expand_name(closure, directive, name, &angled)) {
    return; /* malformed: the compiler says so */
  }
  closure->line = directive->line;
  struct node *found = closure_resolve(closure, node, name, angled, directive->kind == DIRECTIVE_INCLUDE_NEXT);
  if (closure_has_failed(closure)) return;
  note_outcome(closure, outcome, found, name);
  if (!found) {
    miss(closure, name, angled, certain);
    return;
  }
  found->read = 1;
  found->certain |= certain;
  if (!found->content->once) walk(closure, found);
  closure->node = node;
}

/* Room for one more level of conditions. NULL when the arena failed. */
static struct level *push_level(struct closure *closure) {
  struct level *levels =
      arena_grow(&closure->arena, closure->levels, closure->level_count, &closure->level_capacity, sizeof *levels);
  if (!levels) return NULL;
  closure->levels = levels;
  return &closure->levels[closure->level_count++];
}

/* True for an include guard: #ifndef NAME before everything else in the file, and #define NAME behind it. It is no
 * condition. */
static bool is_guard(const struct node *node, size_t index) {
  const struct directive *item = &node->content->directives.items[index];
  if (item->kind != DIRECTIVE_IFNDEF || index + 1 >= node->content->directives.count) return false;
  const struct directive *next = item + 1;
  size_t bytes = item->args_bytes, at = 0;
  while (bytes && strchr(" \t\r", item->args[bytes - 1]))
    bytes--;
  while (at < bytes && strchr(" \t", item->args[at]))
    at++;
  size_t start = 0;
  while (start < next->args_bytes && strchr(" \t", next->args[start]))
    start++;
  return next->kind == DIRECTIVE_DEFINE && next->args_bytes - start >= bytes - at &&
         !memcmp(next->args + start, item->args + at, bytes - at);
}

static void open_level(struct closure *closure, const struct node *node, size_t index, struct level outer) {
  const struct directive *directive = &node->content->directives.items[index];
  bool holds = false;
  if (outer.active && directive->kind == DIRECTIVE_IF) holds = is_true(closure, directive);
  if (outer.active && directive->kind == DIRECTIVE_IFDEF) holds = names_macro(closure, directive);
  if (outer.active && directive->kind == DIRECTIVE_IFNDEF) holds = !names_macro(closure, directive);
  struct level *level = push_level(closure);
  if (level) *level = (struct level){outer.active, holds, holds, outer.certain && is_guard(node, index)};
}

static void next_branch(struct closure *closure, const struct directive *directive, struct level *level) {
  bool holds = level->outer && !level->taken;
  if (holds && directive->kind == DIRECTIVE_ELIF) holds = is_true(closure, directive);
  if (holds && directive->kind == DIRECTIVE_ELIFDEF) holds = names_macro(closure, directive);
  if (holds && directive->kind == DIRECTIVE_ELIFNDEF) holds = !names_macro(closure, directive);
  level->active = holds;
  level->taken |= holds;
  level->certain = false;
}

/* A directive that is no condition, in a branch that holds. */
static void act(struct closure *closure, struct node *node, size_t index, bool certain) {
  const struct directive *directive = &node->content->directives.items[index];
  const char *args = directive->args;
  const size_t bytes = directive->args_bytes;
  switch (directive->kind) {
  case DIRECTIVE_DEFINE:
    macro_define(&closure->macros, args, bytes);
    break;
  case DIRECTIVE_UNDEF:
    macro_undefine(&closure->macros, args, bytes);
    break;
  case DIRECTIVE_PRAGMA:
    if (token_is(macro_tokens(&closure->arena, args, bytes), "once")) node->content->once = node->kind != INCLUDE_MAIN;
    macro_pragma(&closure->macros, args, bytes);
    break;
  default:
    include(closure, node, index, certain);
  }
}

/* One directive of a file. Conditions open, change and close levels; everything else counts only when all levels hold.
 * `base` is the number of levels when the file began, so that a file cannot close a condition of its includer. */
static void walk_directive(struct closure *closure, struct node *node, size_t index, size_t base) {
  const struct level file = {1, 1, 1, node->certain};
  const bool inside = closure->level_count > base;
  struct level *top = inside ? &closure->levels[closure->level_count - 1] : NULL;
  const struct level now = top ? *top : file;
  const struct directive *directive = &node->content->directives.items[index];
  closure->line = directive->line;
  switch (directive->kind) {
  case DIRECTIVE_IF:
  case DIRECTIVE_IFDEF:
  case DIRECTIVE_IFNDEF:
    open_level(closure, node, index, now);
    break;
  case DIRECTIVE_ELIF:
  case DIRECTIVE_ELIFDEF:
  case DIRECTIVE_ELIFNDEF:
  case DIRECTIVE_ELSE:
    if (top) next_branch(closure, directive, top);
    break;
  case DIRECTIVE_ENDIF:
    if (top) closure->level_count--;
    break;
  default:
    if (now.active) act(closure, node, index, now.certain);
  }
}

/* How many directives are walked between two questions whether to stop: some tens of microseconds. */
#define STOP_EVERY 256

static void ask_to_stop(struct closure *closure, size_t index) {
  const struct include_terms *terms = closure->terms;
  if (index % STOP_EVERY || !terms->stop || !terms->stop(terms->stop_user)) return;
  closure_refuse(closure, closure->node->path, KJIT_ERR_CANCELLED, "the walk through the includes was stopped here");
}

static void walk(struct closure *closure, struct node *node) {
  const size_t base = closure->level_count;
  if (closure->depth >= CLOSURE_DEPTH_LIMIT) {
    closure_refuse(closure, node->path, KJIT_ERR_INVALID_ARG, "includes nest deeper than 200 levels");
    return;
  }
  closure->depth++;
  closure->node = node;
  ask_to_stop(closure, 0);
  for (size_t i = 0; i < node->content->directives.count && !closure_has_failed(closure); i++) {
    walk_directive(closure, node, i, base);
    ask_to_stop(closure, i + 1);
  }
  closure->level_count = base;
  closure->depth--;
}

/* Read every literal #include that was not reached as well, so that a compiler of any version and with any macros finds
 * what it asks for. */
static void follow_everything(struct closure *closure) {
  for (struct node *node = closure->main; node; node = node->next) {
    const struct directive_list *list = &node->content->directives;
    closure->node = node;
    for (size_t i = 0; i < list->count && !closure_has_failed(closure); i++) {
      const struct directive *item = &list->items[i];
      char name[HEADER_NAME_LIMIT];
      const char *text;
      size_t bytes;
      bool angled;
      if (item->kind > DIRECTIVE_INCLUDE_NEXT || node->outcomes[i].kind != OUTCOME_UNREACHED) continue;
      if (!directive_header(item->args, item->args_bytes, &text, &bytes, &angled) || bytes >= sizeof name) continue;
      memcpy(name, text, bytes);
      name[bytes] = '\0';
      closure->line = item->line;
      struct node *found = closure_resolve(closure, node, name, angled, item->kind == DIRECTIVE_INCLUDE_NEXT);
      ask_to_stop(closure, 0);
      if (found) found->read = 1;
      note_outcome(closure, &node->outcomes[i], found, name);
    }
  }
}

void closure_walk(struct closure *closure) {
  walk(closure, closure->main);
  if (closure->terms->everything && !closure_has_failed(closure)) follow_everything(closure);
}
