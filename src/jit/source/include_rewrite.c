/* The texts that the compiler is given: those that were read, with a directive rewritten where its name as written
 * would lead the compiler, which knows headers by name alone, to another file than the walk found. A line keeps its
 * number, so that messages stay right. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "jit/source/include_closure_internal.h"

/* Longest rewritten text: a header of 64 MiB, every directive of which grew. */
#define REWRITTEN_LIMIT ((size_t)256 << 20)

/* The arguments of a directive after rewriting; when `changed` is false they are the original ones. */
struct rewriting {
  struct text text;
  bool changed;
};

static void quote(struct rewriting *out, const char *prefix, const char *name, size_t bytes) {
  out->changed = 1;
  text_append(&out->text, " \"");
  text_append(&out->text, prefix);
  text_append_bytes(&out->text, name, bytes);
  text_append(&out->text, "\"");
}

static bool is_name(const char *name, const char *text, size_t bytes) {
  return strlen(name) == bytes && !memcmp(name, text, bytes);
}

/* What an #include becomes. One that was read gets its file's own name, unless it has that already. One that led
 * nowhere stays, so that the compiler reports the name the user wrote, unless another file has been given that name.
 * One that was not reached gets a name that no file has. */
static void rewrite_include(const struct closure *closure, const struct node *node, size_t index,
                            struct rewriting *out) {
  const struct directive *item = &node->content->directives.items[index];
  const struct outcome *outcome = &node->outcomes[index];
  const char *name = "a computed name";
  size_t bytes = strlen(name);
  char text[HEADER_NAME_LIMIT];
  bool angled;
  const bool literal = directive_header(item->args, item->args_bytes, &name, &bytes, &angled);
  if (outcome->kind == OUTCOME_VARIES) return;
  if (outcome->kind == OUTCOME_READ) {
    const bool same = literal && is_name(outcome->node->name, name, bytes) && item->kind == DIRECTIVE_INCLUDE;
    if (!same) quote(out, "", outcome->node->name, strlen(outcome->node->name));
    return;
  }
  if (outcome->kind == OUTCOME_MISSING) { /* to be named in the compiler's message, unless another file has the name */
    if (!literal || bytes >= sizeof text) return;
    memcpy(text, name, bytes);
    text[bytes] = '\0';
    if (!closure_find_name(closure, text)) return;
  }
  quote(out, INCLUDE_UNREAD, name, bytes);
}

/* "__has_include" or "__has_include_next", "(", a literal name and ")" at `at`: the bytes of it all; 0 when it is not
 * that. */
static size_t read_question(const char *args, size_t bytes, size_t at, char name[HEADER_NAME_LIMIT], bool *angled,
                            bool *next) {
  static const char word[] = "__has_include", more[] = "_next";
  const size_t start = at;
  if (bytes - at < sizeof word || memcmp(args + at, word, sizeof word - 1) != 0) return 0;
  at += sizeof word - 1;
  *next = bytes - at >= sizeof more && !memcmp(args + at, more, sizeof more - 1);
  if (*next) at += sizeof more - 1;
  while (at < bytes && strchr(" \t", args[at]))
    at++;
  if (at == bytes || args[at++] != '(') return 0;
  const char *text;
  size_t length;
  if (!directive_header(args + at, bytes - at, &text, &length, angled) || length >= HEADER_NAME_LIMIT) return 0;
  memcpy(name, text, length);
  name[length] = '\0';
  at = (size_t)(text - args) + length + 1;
  while (at < bytes && strchr(" \t", args[at]))
    at++;
  return at < bytes && args[at] == ')' ? at + 1 - start : 0;
}

/* In an #if or #elif, literal __has_include questions become 1 or 0, because the compiler sees no folder and would
 * answer 0 to all of them. */
static void rewrite_condition(struct closure *closure, const struct node *node, const struct directive *item,
                              struct rewriting *out) {
  const struct include_from from = closure_from(node);
  size_t done = 0;
  if (!memmem(item->args, item->args_bytes, "__has_include", 13)) return;
  for (size_t at = 0; at < item->args_bytes;) {
    char name[HEADER_NAME_LIMIT];
    bool angled, next;
    const size_t bytes = read_question(item->args, item->args_bytes, at, name, &angled, &next);
    if (!bytes) {
      at++;
      continue;
    }
    text_append_bytes(&out->text, item->args + done, at - done);
    text_append(&out->text, include_exists(&closure->finder, &from, name, angled, next) ? " 1" : " 0");
    out->changed = 1;
    at += bytes;
    done = at;
  }
  if (out->changed) text_append_bytes(&out->text, item->args + done, item->args_bytes - done);
}

static size_t count_newlines(const char *text, size_t bytes) {
  size_t count = 0;
  for (const char *at = text; (at = memchr(at, '\n', bytes - (size_t)(at - text))); at++)
    count++;
  return count;
}

/* `#include_next` becomes `#include`, which its whole word stands in front of the args for. */
static size_t word_start(const struct node *node, const struct directive *item) {
  static const char tail[] = "_next";
  const size_t bytes = sizeof tail - 1;
  if (item->kind != DIRECTIVE_INCLUDE_NEXT || item->begin < bytes) return item->begin;
  const char *end = node->content->text + item->begin - bytes;
  return memcmp(end, tail, bytes) != 0 ? item->begin : item->begin - bytes;
}

/* Append the node's text up to the directive, and the directive with its new arguments. Lines that were joined are made
 * up for; those of a raw string are in the arguments still. */
static void replace(struct text *whole, size_t *done, const struct node *node, const struct directive *item,
                    const struct rewriting *out) {
  const char *text = node->content->text;
  const size_t start = word_start(node, item);
  text_append_bytes(whole, text + *done, start - *done);
  text_append_bytes(whole, out->text.data, out->text.bytes);
  const size_t wanted = count_newlines(text + item->begin, item->end - item->begin);
  for (size_t lines = count_newlines(out->text.data, out->text.bytes); lines < wanted; lines++)
    text_append(whole, "\n");
  *done = item->end;
}

/* Rewrite one file's text. A file in which nothing changes keeps its original text, without a copy. */
static void rewrite_node(struct closure *closure, struct node *node) {
  struct text whole;
  size_t done = 0;
  text_init(&whole, closure->mem, REWRITTEN_LIMIT);
  for (size_t i = 0; i < node->content->directives.count && !closure_has_failed(closure); i++) {
    const struct directive *item = &node->content->directives.items[i];
    struct rewriting out = {.changed = 0};
    text_init(&out.text, closure->mem, REWRITTEN_LIMIT);
    if (item->kind <= DIRECTIVE_INCLUDE_NEXT) rewrite_include(closure, node, i, &out);
    if (item->kind == DIRECTIVE_IF || item->kind == DIRECTIVE_ELIF) rewrite_condition(closure, node, item, &out);
    if (out.changed) replace(&whole, &done, node, item, &out);
    whole.failed |= out.text.failed;
    text_finish(&out.text);
  }
  if (done) {
    text_append_bytes(&whole, node->content->text + done, node->content->bytes - done);
    node->rewritten_bytes = whole.bytes;
    node->rewritten = text_take(&whole);
    if (!node->rewritten) closure_fail(closure, error_no_memory(closure->error));
  }
  text_finish(&whole);
}

static void write_alias(struct closure *closure, struct alias *alias) {
  char text[HEADER_NAME_LIMIT + INCLUDE_PATH_LIMIT + 16];
  const int bytes = alias->node ? snprintf(text, sizeof text, "#include \"%s\"\n", alias->node->name)
                                : snprintf(text, sizeof text, "\n");
  alias->text_bytes = bytes > 0 && bytes < (int)sizeof text ? (size_t)bytes : 0;
  alias->text = arena_copy(&closure->arena, text, alias->text_bytes);
}

void closure_rewrite(struct closure *closure) {
  for (struct node *node = closure->main; node && !closure_has_failed(closure); node = node->next)
    if (node->read) rewrite_node(closure, node);
  closure_each_alias(closure, write_alias);
}
