/* What a source includes, found without the compiler and without knowing which compiler it will be.
 *
 * Bare NVRTC reads headers from disk while it compiles. A cache must know them before, and must be sure that the
 * compiler reads what was hashed. So:
 *
 *  1. The source is walked as its preprocessor walks it: directives in order (directive_scan.c), macros (macro_table.c,
 *     macro_expand.c), conditions (condition.c), with the macros that NVRTC predefines (predefined.c). Each #include
 *     that is reached, also a computed one or an #include_next, is looked for as bare NVRTC does (include_find.c). A
 *     file is known by the path that led to it, since its own quoted includes depend on that; `#pragma once` is known
 *     by the file itself.
 *  2. Every file that was reached gets a name of its own: the name as written where that is free. Directives that would
 *     lead elsewhere by that name are rewritten, within their line (include_rewrite.c). Literal __has_include's
 *     become 1 or 0.
 *  3. The compiler is given exactly these texts in memory and no folder. The key is made of the same texts. So nothing
 *     can change between hashing and compiling, and no mistake of the walk can make a stale kernel: a header that the
 *     walk missed is not there, and the compile fails. An #include that was not reached is given a name that says so
 *     (INCLUDE_UNREAD); a compile that fails for one is repeated with `everything`, the union of all branches.
 *
 * One collection belongs to one thread. */
#include "jit/source/include_closure.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "jit/source/include_closure_internal.h"
#include "jit/source/predefined.h"

struct node_entry {
  UT_hash_handle hh;
  struct node *node;
};
struct alias_entry {
  UT_hash_handle hh;
  struct alias alias;
};

/* -- Failures ----------------------------------------------------------------------------------------------------- */

void closure_fail(struct closure *closure, kjit_status status) {
  if (closure->status == KJIT_OK) closure->status = status;
}

void closure_refuse(struct closure *closure, const char *name, kjit_status status, const char *what) {
  if (closure->status != KJIT_OK) return;
  closure_fail(closure, error_set(closure->error, status, "%s:%zu: #include %.160s: %s", closure->node->path,
                                  closure->line, name, what));
}

bool closure_has_failed(struct closure *closure) {
  if (closure->arena.failed && closure->status == KJIT_OK) closure_fail(closure, error_no_memory(closure->error));
  return closure->status != KJIT_OK;
}

/* -- Files -------------------------------------------------------------------------------------------------------- */

static struct node_entry *find_entry(struct node_entry *table, const char *key) {
  struct node_entry *entry = NULL;
  HASH_FIND(hh, table, key, strlen(key), entry);
  return entry;
}

struct node *closure_find_name(const struct closure *closure, const char *name) {
  const struct node_entry *entry = find_entry(closure->by_name, name);
  return entry ? entry->node : NULL;
}

static void add_entry(struct closure *closure, struct node_entry **table, const char *key, struct node *node) {
  const struct mem *mem = closure->mem;
  bool added = true;
  struct node_entry *entry = arena_alloc(&closure->arena, sizeof *entry);
  if (!entry) return;
  entry->node = node;
  HASH_ADD_KEYPTR(hh, *table, key, strlen(key), entry);
  if (!added) closure->arena.failed = true;
}

/* A file on disk is known by its device and inode, a header in memory by its text. */
static struct content *find_content(struct closure *closure, const struct include_place *place) {
  struct content *content = NULL;
  if (!place->header) {
    uint64_t file[2];
    memcpy(&file[0], &place->stamp.device, sizeof file[0]); /* copied, because clang's analyzer takes the bytes of */
    memcpy(&file[1], &place->stamp.inode, sizeof file[1]);  /* numbers that are assigned for bytes without a value */
    HASH_FIND(hh, closure->by_file, file, sizeof file, content);
    return content;
  }
  for (content = closure->contents; content && content->given != place->header->text;)
    content = content->next;
  return content;
}

static void add_content(struct closure *closure, struct content *content) {
  const struct mem *mem = closure->mem;
  bool added = true;
  content->next = closure->contents;
  closure->contents = content;
  if (content->stamp.kind != FILE_STAMP_FILE) return;
  content->file[0] = content->stamp.device;
  content->file[1] = content->stamp.inode;
  HASH_ADD_KEYPTR(hh, closure->by_file, content->file, sizeof content->file, content);
  if (!added) closure->arena.failed = true;
}

static kjit_status read_content(struct closure *closure, const struct include_place *place, struct content *content) {
  if (place->header) {
    content->given = place->header->text;
    content->bytes = place->header->bytes;
    content->text = content->owned = mem_duplicate(closure->mem, content->given, content->bytes);
    return content->owned ? KJIT_OK : error_no_memory(closure->error);
  }
  content->stamp = place->stamp;
  const kjit_status status =
      file_read(closure->mem, place->path, CLOSURE_BYTES_LIMIT, &content->owned, &content->bytes, closure->error);
  content->text = content->owned;
  if (status == KJIT_OK) digest_of(&content->digest, content->text, content->bytes);
  return status;
}

/* Read a file once, however many paths lead to it, and find its directives. */
static struct content *get_content(struct closure *closure, const struct include_place *place) {
  struct content *content = find_content(closure, place);
  if (content) return content;
  content = arena_alloc(&closure->arena, sizeof *content);
  if (!content) return NULL;
  closure_fail(closure, read_content(closure, place, content));
  add_content(closure, content);
  if (closure->status != KJIT_OK) return NULL;
  closure->bytes += content->bytes;
  if (closure->bytes > CLOSURE_BYTES_LIMIT)
    closure_refuse(closure, place->path, KJIT_ERR_INVALID_ARG, "one source may reach 64 MiB of text");
  else if (memchr(content->text, '\0', content->bytes))
    closure_refuse(closure, place->path, KJIT_ERR_INVALID_ARG,
                   "the file has a NUL byte, where the compiler would stop");
  else
    (void)directive_scan(&content->directives, content->text, content->bytes, &closure->arena);
  return closure_has_failed(closure) ? NULL : content;
}

/* The name as written if no other file has it, else that with a number. Names of headers in memory are theirs. */
static const char *choose_name(struct closure *closure, const struct include_place *place, const char *wanted) {
  const struct include_search *search = closure->finder.search;
  for (unsigned number = 1;; number++) {
    char name[HEADER_NAME_LIMIT + INCLUDE_PATH_LIMIT];
    if (number == 1)
      (void)snprintf(name, sizeof name, "%s", wanted);
    else
      (void)snprintf(name, sizeof name, "%s@%u", wanted, number);
    bool taken = closure_find_name(closure, name) != NULL;
    for (size_t i = 0; i < search->header_count && !taken; i++)
      taken = &search->headers[i] != place->header && !strcmp(search->headers[i].name, name);
    if (!taken) return arena_copy(&closure->arena, name, strlen(name));
  }
}

/* The name under which a place would be known: as written, and beside another file by the way that led there. */
static void wanted_name(const struct include_place *place, const struct node *from, const char *name,
                        char out[HEADER_NAME_LIMIT + INCLUDE_PATH_LIMIT]) {
  const size_t capacity = HEADER_NAME_LIMIT + INCLUDE_PATH_LIMIT;
  const char *slash = strrchr(from->name, '/');
  if (place->header)
    (void)snprintf(out, capacity, "%s", place->header->name);
  else if (place->kind == INCLUDE_BESIDE && slash)
    (void)snprintf(out, capacity, "%.*s/%s", (int)(slash - from->name), from->name, name);
  else
    (void)snprintf(out, capacity, "%s", name);
}

/* Add a file under one path. The same file under two paths is two nodes, because its quoted includes may differ. */
static struct node *add_node(struct closure *closure, struct content *content, const struct include_place *place,
                             const char *wanted) {
  struct node *node = arena_alloc(&closure->arena, sizeof *node);
  if (!node) return NULL;
  const size_t outcomes = content->directives.count * sizeof *node->outcomes;
  *node = (struct node){.kind = place->kind, .folder = place->folder, .content = content};
  node->path = arena_copy(&closure->arena, place->path, strlen(place->path));
  node->outcomes = arena_alloc(&closure->arena, outcomes);
  node->name = choose_name(closure, place, wanted);
  if (!node->path || !node->outcomes || !node->name) return NULL;
  if (!content->first) content->first = node;
  add_entry(closure, &closure->by_path, node->path, node);
  add_entry(closure, &closure->by_name, node->name, node);
  *closure->last_node = node;
  closure->last_node = &node->next;
  closure->node_count++;
  return node;
}

/* The file that a name leads to; NULL when that is nowhere, or something failed. */
struct node *closure_resolve(struct closure *closure, struct node *from, const char *name, bool angled, bool next) {
  struct include_place place;
  char wanted[HEADER_NAME_LIMIT + INCLUDE_PATH_LIMIT];
  const struct include_from where = closure_from(from);
  if (!include_find(&closure->finder, &where, name, angled, next, &place)) return NULL;
  const struct node_entry *known = find_entry(closure->by_path, place.path);
  if (known && (known->node->kind == INCLUDE_MEMORY) == (place.kind == INCLUDE_MEMORY)) return known->node;
  if (closure->node_count >= CLOSURE_FILE_LIMIT) {
    closure_refuse(closure, name, KJIT_ERR_INVALID_ARG, "one source may reach 4096 files");
    return NULL;
  }
  struct content *content = get_content(closure, &place);
  if (!content) return NULL;
  if (content->once) return content->first;
  wanted_name(&place, from, name, wanted);
  return add_node(closure, content, &place, wanted);
}

struct include_from closure_from(const struct node *node) {
  return (struct include_from){node->kind, node->folder, node->path};
}

/* -- Aliases ------------------------------------------------------------------------------------------------------ */

void closure_add_alias(struct closure *closure, const char *name, struct node *node) {
  const struct mem *mem = closure->mem;
  bool added = true;
  struct alias_entry *entry = NULL;
  const struct node *named = closure_find_name(closure, name);
  if (named && (!node || named == node)) return;
  HASH_FIND(hh, closure->aliases, name, strlen(name), entry);
  if (entry && !entry->alias.node) entry->alias.node = node;
  if (named || (entry && node && entry->alias.node != node)) {
    closure_refuse(closure, name, KJIT_ERR_UNSUPPORTED,
                   "the name is computed and means two files of that name; write it out, or rename one");
    return;
  }
  if (entry) return;
  entry = arena_alloc(&closure->arena, sizeof *entry);
  if (!entry) return;
  entry->alias = (struct alias){.name = arena_copy(&closure->arena, name, strlen(name)), .node = node};
  if (!entry->alias.name) return;
  HASH_ADD_KEYPTR(hh, closure->aliases, entry->alias.name, strlen(entry->alias.name), entry);
  if (!added) closure->arena.failed = true;
  closure->alias_count++;
}

void closure_each_alias(struct closure *closure, void (*act)(struct closure *closure, struct alias *alias)) {
  for (struct alias_entry *entry = closure->aliases; entry; entry = entry->hh.next)
    act(closure, &entry->alias);
}

size_t closure_aliases(struct closure *closure, struct alias *aliases) {
  size_t count = 0;
  for (const struct alias_entry *entry = closure->aliases; entry; entry = entry->hh.next)
    if (!closure_find_name(closure, entry->alias.name)) aliases[count++] = entry->alias;
  return count;
}

/* -- The whole ---------------------------------------------------------------------------------------------------- */

static struct node *add_main(struct closure *closure, const kjit_source *source) {
  struct include_place place = {.kind = INCLUDE_MAIN, .header = source};
  (void)snprintf(place.path, sizeof place.path, "%s", source->name);
  struct content *content = get_content(closure, &place);
  struct node *node = content ? add_node(closure, content, &place, source->name) : NULL;
  if (node) node->certain = node->read = 1;
  return node;
}

static kjit_status collect(struct closure *closure, const kjit_source *source) {
  /* Failures before the source is there are told as if they were in it. */
  struct node outside = {.path = source->name};
  closure->node = &outside;
  closure->main = add_main(closure, source);
  if (closure->main) {
    predefined_define(&closure->macros, closure->terms);
    closure_walk(closure);
  }
  if (!closure_has_failed(closure)) closure_rewrite(closure);
  (void)closure_has_failed(closure);
  return closure->status;
}

kjit_status include_closure_collect(struct include_closure *out, const struct mem *mem,
                                    const struct include_search *search, const struct include_terms *terms,
                                    const kjit_source *source, kjit_error *error) {
  *out = (struct include_closure){.mem = mem};
  if (source->bytes > CLOSURE_BYTES_LIMIT)
    return error_set(error, KJIT_ERR_INVALID_ARG, "source.bytes: %zu; a source may have 64 MiB", source->bytes);
  struct closure *closure = mem_alloc(mem, sizeof *closure);
  if (!closure) return error_no_memory(error);
  closure->mem = mem;
  closure->terms = terms;
  closure->error = error;
  closure->last_node = &closure->main;
  out->state = closure;
  arena_init(&closure->arena, mem, CLOSURE_ARENA_LIMIT);
  include_finder_init(&closure->finder, mem, &closure->arena, search);
  macro_table_init(&closure->macros, mem, &closure->arena);
  return collect(closure, source);
}

kjit_status include_closure_seal(struct include_closure *out, struct source_set *set, struct source_file **files,
                                 kjit_error *error) {
  struct closure *closure = out->state;
  const size_t most = closure->node_count + closure->alias_count;
  struct source_file *list = mem_alloc_array(out->mem, most, sizeof *list);
  struct alias *aliases = arena_alloc(&closure->arena, (closure->alias_count + 1) * sizeof *aliases);
  *files = list;
  if (!list || !aliases) return error_no_memory(error);
  size_t count = 0;
  for (const struct node *node = closure->main; node; node = node->next) {
    if (!node->read) continue;
    const char *text = node->rewritten ? node->rewritten : node->content->text;
    const size_t bytes = node->rewritten ? node->rewritten_bytes : node->content->bytes;
    list[count] = (struct source_file){.name = node->name, .path = node->path, .text = text, .bytes = bytes};
    /* Known from the reading, where the text is the file's own; all zero for a text in memory. */
    if (!node->rewritten) list[count].digest = node->content->digest;
    count++;
  }
  const size_t alias_count = closure_aliases(closure, aliases);
  for (size_t i = 0; i < alias_count; i++) {
    const struct alias *alias = &aliases[i];
    const char *path = alias->node ? alias->node->path : alias->name;
    list[count++] =
        (struct source_file){.name = alias->name, .path = path, .text = alias->text, .bytes = alias->text_bytes};
  }
  return source_set_seal(set, list, count, out->mem) ? KJIT_OK : error_no_memory(error);
}

bool include_closure_watches(const struct include_closure *out, const struct include_watch **watches, size_t *count) {
  struct closure *closure = out->state;
  *count = closure->node_count + include_folder_count(&closure->finder);
  struct include_watch *list = arena_alloc(&closure->arena, (*count + 1) * sizeof *list);
  *watches = list;
  if (!list) return false;
  for (const struct node *node = closure->main; node; node = node->next) {
    if (node->content->stamp.kind != FILE_STAMP_FILE) continue;
    *list++ = (struct include_watch){node->path, node->content->stamp, node->content->digest};
  }
  include_folders(&closure->finder, list);
  *count = (size_t)(list - *watches) + include_folder_count(&closure->finder);
  return true;
}

void include_closure_finish(struct include_closure *out) {
  struct closure *closure = out->state;
  out->state = NULL;
  if (!closure) return;
  const struct mem *mem = closure->mem;
  HASH_CLEAR(hh, closure->by_file);
  HASH_CLEAR(hh, closure->by_path);
  HASH_CLEAR(hh, closure->by_name);
  HASH_CLEAR(hh, closure->aliases);
  macro_table_finish(&closure->macros);
  include_finder_finish(&closure->finder);
  for (struct node *node = closure->main; node; node = node->next)
    mem_free(closure->mem, node->rewritten);
  for (struct content *content = closure->contents; content; content = content->next)
    mem_free(closure->mem, content->owned);
  arena_finish(&closure->arena);
  mem_free(closure->mem, closure);
}
