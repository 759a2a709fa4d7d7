#include "jit/request/include_closure.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "jit/request/include_scan.h"

/* uthash's own memory comes from the caller's hooks as well. */
#define HASH_NONFATAL_OOM          1
#define uthash_malloc(bytes)       mem_alloc(closure->mem, bytes)
#define uthash_free(memory, bytes) mem_free(closure->mem, memory)
#define uthash_nonfatal_oom(file)  (added = 0)
#include <uthash.h>

/* All of CUDA 13.0's own headers are 1,982 files and 24 MB. */
#define FILE_LIMIT  4096
#define BYTES_LIMIT ((size_t)64 << 20)

/* As deep as C compilers let includes nest. */
#define DEPTH_LIMIT 200

#define NAME_LIMIT 1024
#define PATH_LIMIT 4096

struct closure_file {
  UT_hash_handle hh;
  char *name; /* as written in #include: how the compiler asks for it */
  char *text;
  size_t bytes;
  char *place; /* its own name in memory, or its path: what its quoted includes are relative to */
  _Bool on_disk;
  _Bool required; /* every compile reads it */
  _Bool checked;  /* its includes were looked at by check_required() */
  uint32_t depth;
};

/* Where a name leads: to a header in memory, or to a path. */
struct found {
  const kjit_source *header; /* NULL: on disk */
  kjit_source library;       /* what `header` points to when it is one of kjit's own */
  char path[PATH_LIMIT];
};

struct visit {
  struct include_closure *closure;
  struct closure_file *file;
};

static const char *open_mark(const struct include *include) {
  return include->angled ? "<" : "\"";
}
static const char *close_mark(const struct include *include) {
  return include->angled ? ">" : "\"";
}

/* "main.cu:3: #include "x.h": <what>". */
static kjit_status refuse(const struct visit *visit, const struct include *include, kjit_status status,
                          const char *what) {
  const int bytes = include->name_bytes < 160 ? (int)include->name_bytes : 160;
  const _Bool computed = include->computed;
  return error_set(visit->closure->error, status, "%s:%zu: #include %s%.*s%s: %s", visit->file->name, include->line,
                   computed ? "" : open_mark(include), bytes, include->name, computed ? "" : close_mark(include), what);
}

/* -- Paths -------------------------------------------------------------------------------------------------------- */

/* "<folder of place>/<name>" with "." and "x/.." taken out, as names in memory are compared as text. False when it does
 * not fit. */
static _Bool join_name(char out[PATH_LIMIT], const char *place, const char *name) {
  const char *slash = strrchr(place, '/');
  const int length = snprintf(out, PATH_LIMIT, "%.*s%s", slash ? (int)(slash - place + 1) : 0, place, name);
  if (length < 0 || length >= PATH_LIMIT) return 0;
  char *to = out, *floor = out; /* below the floor are ".." that nothing cancels */
  for (const char *from = out; *from;) {
    const size_t bytes = strcspn(from, "/"), step = bytes + (from[bytes] == '/');
    const _Bool up = bytes == 2 && !memcmp(from, "..", 2);
    if (up && to > floor) {
      for (to--; to > floor && to[-1] != '/';)
        to--;
    } else if (bytes && !(bytes == 1 && *from == '.')) {
      memmove(to, from, step);
      to += step;
      if (up) floor = to;
    }
    from += step;
  }
  *to = '\0';
  return to > out;
}

static _Bool join_path(char out[PATH_LIMIT], const char *folder, size_t folder_bytes, const char *name) {
  if (folder_bytes > PATH_LIMIT) return 0;
  const int length = snprintf(out, PATH_LIMIT, "%.*s/%s", (int)folder_bytes, folder, name);
  return length > 0 && length < PATH_LIMIT;
}

/* -- Finding ------------------------------------------------------------------------------------------------------ */

static const kjit_source *find_in_memory(const struct include_search *search, const char *name) {
  for (size_t i = 0; i < search->header_count; i++) {
    if (!strcmp(search->headers[i].name, name)) return &search->headers[i];
  }
  return NULL;
}

static _Bool find_beside(const struct include_search *search, const struct closure_file *file, const char *name,
                         struct found *found) {
  struct file_identity identity;
  if (!file->on_disk) {
    found->header = join_name(found->path, file->place, name) ? find_in_memory(search, found->path) : NULL;
    return found->header != NULL;
  }
  const char *slash = strrchr(file->place, '/');
  return slash && join_path(found->path, file->place, (size_t)(slash - file->place), name) &&
         file_identify(found->path, &identity);
}

static _Bool find(const struct visit *visit, const struct include *include, const char *name, struct found *found) {
  const struct include_search *search = visit->closure->search;
  struct file_identity identity;
  found->header = find_in_memory(search, name);
  if (found->header) return 1;
  if (!include->angled && find_beside(search, visit->file, name, found)) return 1;
  for (size_t i = 0; i < search->dir_count; i++) {
    if (join_path(found->path, search->dirs[i], strlen(search->dirs[i]), name) && file_identify(found->path, &identity))
      return 1;
  }
  return 0;
}

/* One of kjit's own headers, which come after whatever the caller has given under that name. KJIT_ERR_NOT_FOUND,
 * without a message, when there is none. */
static kjit_status find_in_library(const struct visit *visit, const struct include *include, const char *name,
                                   struct found *found) {
  struct include_closure *closure = visit->closure;
  const kjit_status status = library_header_find(&closure->library, closure->mem, name, &found->library);
  found->header = &found->library;
  if (status == KJIT_ERR_NO_MEMORY) return error_no_memory(closure->error);
  if (status != KJIT_ERR_UNSUPPORTED) return status;
  if (include->optional) return KJIT_ERR_NOT_FOUND; /* the compiler says so if it comes to it */
  return refuse(visit, include, status,
                "this library was built without its kernel sources (KJIT_EMBED_SOURCES=OFF): add a folder that has "
                "this header to include_dirs");
}

/* -- Files -------------------------------------------------------------------------------------------------------- */

static void free_file(const struct mem *mem, struct closure_file *file) {
  if (!file) return;
  mem_free(mem, file->name);
  mem_free(mem, file->text);
  mem_free(mem, file->place);
  mem_free(mem, file);
}

static kjit_status make_room(struct include_closure *closure) {
  if (closure->count < closure->capacity) return KJIT_OK;
  const size_t capacity = closure->capacity ? 2 * closure->capacity : 16;
  struct closure_file **files = mem_alloc_array(closure->mem, capacity, sizeof(struct closure_file *));
  if (!files) return error_no_memory(closure->error);
  if (closure->count) memcpy(files, closure->files, closure->count * sizeof *files);
  mem_free(closure->mem, closure->files);
  closure->files = files;
  closure->capacity = capacity;
  return KJIT_OK;
}

/* Takes the file over, in failure too. Headers can be asked for by name, the source cannot. */
static kjit_status add_file(struct include_closure *closure, struct closure_file *file) {
  _Bool added = 1;
  const kjit_status status = make_room(closure);
  if (status != KJIT_OK) {
    free_file(closure->mem, file);
    return status;
  }
  if (closure->count) HASH_ADD_KEYPTR(hh, closure->by_name, file->name, strlen(file->name), file);
  if (!added) {
    free_file(closure->mem, file);
    return error_no_memory(closure->error);
  }
  closure->files[closure->count++] = file;
  closure->bytes += file->bytes;
  return KJIT_OK;
}

static kjit_status read_text(const struct include_closure *closure, const struct found *found, char **text,
                             size_t *bytes) {
  if (!found->header) return file_read(closure->mem, found->path, BYTES_LIMIT, text, bytes, closure->error);
  *bytes = found->header->bytes;
  *text = mem_duplicate(closure->mem, found->header->text, *bytes);
  return *text ? KJIT_OK : error_no_memory(closure->error);
}

static kjit_status load(const struct visit *visit, const struct include *include, const char *name,
                        const struct found *found) {
  struct include_closure *closure = visit->closure;
  if (closure->count >= FILE_LIMIT)
    return refuse(visit, include, KJIT_ERR_INVALID_ARG, "one source may reach 4096 files");
  if (visit->file->depth >= DEPTH_LIMIT)
    return refuse(visit, include, KJIT_ERR_INVALID_ARG, "includes nest deeper than 200 levels");
  struct closure_file *file = mem_alloc(closure->mem, sizeof *file);
  if (!file) return error_no_memory(closure->error);
  file->name = mem_strdup(closure->mem, name);
  file->place = mem_strdup(closure->mem, found->header ? found->header->name : found->path);
  file->on_disk = !found->header;
  file->depth = visit->file->depth + 1;
  kjit_status status = file->name && file->place ? KJIT_OK : error_no_memory(closure->error);
  if (status == KJIT_OK) status = read_text(closure, found, &file->text, &file->bytes);
  if (status == KJIT_OK && file->bytes > BYTES_LIMIT - closure->bytes)
    status = refuse(visit, include, KJIT_ERR_INVALID_ARG, "one source may reach 64 MiB of text");
  if (status == KJIT_OK && memchr(file->text, '\0', file->bytes))
    status = refuse(visit, include, KJIT_ERR_INVALID_ARG, "the file has a NUL byte, where the compiler would stop");
  if (status == KJIT_OK) return add_file(closure, file);
  free_file(closure->mem, file);
  return status;
}

/* The compiler knows a header by the name written, wherever that stands; two meanings cannot both be had. */
static kjit_status check_same(const struct visit *visit, const struct include *include, const struct closure_file *file,
                              const struct found *found) {
  char *text = NULL;
  size_t bytes = 0;
  if (!strcmp(file->place, found->header ? found->header->name : found->path)) return KJIT_OK;
  kjit_status status = read_text(visit->closure, found, &text, &bytes);
  if (status != KJIT_OK) return status;
  if (bytes != file->bytes || memcmp(text, file->text, bytes) != 0)
    status = refuse(visit, include, KJIT_ERR_INVALID_ARG, "means another file here than where it was read before");
  mem_free(visit->closure->mem, text);
  return status;
}

/* -- The walk ----------------------------------------------------------------------------------------------------- */

static struct closure_file *find_known(const struct include_closure *closure, const char *name, size_t bytes) {
  struct closure_file *file = NULL;
  HASH_FIND(hh, closure->by_name, name, bytes, file);
  return file;
}

/* In files of the caller a computed name is refused: it could be any path. Headers found in folders are often a
 * library's, with such lines for other compilers; what they name is read only if it is in the closure. */
static kjit_status collect_include(void *user, const struct include *include) {
  const struct visit *visit = user;
  struct found found;
  char name[NAME_LIMIT];
  if (include->computed && visit->file->on_disk) return KJIT_OK;
  if (include->computed)
    return refuse(visit, include, KJIT_ERR_INVALID_ARG, "write the name out: the file is part of the key");
  if (include->name[0] == '/')
    return refuse(visit, include, KJIT_ERR_INVALID_ARG,
                  "names are relative: a path of this machine cannot be in the key");
  if (include->name_bytes >= sizeof name) return refuse(visit, include, KJIT_ERR_INVALID_ARG, "the name is too long");
  memcpy(name, include->name, include->name_bytes);
  name[include->name_bytes] = '\0';
  if (!find(visit, include, name, &found)) {
    const kjit_status status = find_in_library(visit, include, name, &found);
    if (status != KJIT_OK) return status == KJIT_ERR_NOT_FOUND ? KJIT_OK : status;
  }
  const struct closure_file *known = find_known(visit->closure, name, include->name_bytes);
  return known ? check_same(visit, include, known, &found) : load(visit, include, name, &found);
}

static kjit_status require_include(void *user, const struct include *include) {
  const struct visit *visit = user;
  if (include->optional || include->computed) return KJIT_OK;
  struct closure_file *file = find_known(visit->closure, include->name, include->name_bytes);
  if (file) {
    file->required = 1;
    return KJIT_OK;
  }
  return refuse(visit, include, KJIT_ERR_NOT_FOUND,
                visit->closure->search->dir_count ? "neither among the headers given nor in a folder of include_dirs"
                                                  : "not among the headers given, and there are no include_dirs");
}

static kjit_status scan(struct include_closure *closure, struct closure_file *file, include_visit visitor) {
  struct visit visit = {closure, file};
  return include_scan(file->text, file->bytes, visitor, &visit);
}

/* Which includes does every compile read? Those under no condition, from files under none. Ones under a condition may
 * be missing: the compiler says so if it comes to it. */
static kjit_status check_required(struct include_closure *closure) {
  kjit_status status = KJIT_OK;
  for (_Bool again = 1; again && status == KJIT_OK;) {
    again = 0;
    for (size_t i = 0; i < closure->count && status == KJIT_OK; i++) {
      struct closure_file *file = closure->files[i];
      if (!file->required || file->checked) continue;
      file->checked = again = 1;
      status = scan(closure, file, require_include);
    }
  }
  return status;
}

static kjit_status add_source(struct include_closure *closure, const kjit_source *source) {
  struct closure_file *file = mem_alloc(closure->mem, sizeof *file);
  if (!file) return error_no_memory(closure->error);
  file->name = mem_strdup(closure->mem, source->name);
  file->place = mem_strdup(closure->mem, source->name);
  file->text = mem_duplicate(closure->mem, source->text, source->bytes);
  file->bytes = source->bytes;
  file->required = 1;
  if (file->name && file->place && file->text) return add_file(closure, file);
  free_file(closure->mem, file);
  return error_no_memory(closure->error);
}

kjit_status include_closure_collect(struct include_closure *closure, const struct mem *mem,
                                    const struct include_search *search, const kjit_source *source, kjit_error *error) {
  *closure = (struct include_closure){.mem = mem, .search = search, .error = error};
  if (source->bytes > BYTES_LIMIT) {
    return error_set(error, KJIT_ERR_INVALID_ARG, "source.bytes: %zu; a source may have 64 MiB", source->bytes);
  }
  kjit_status status = add_source(closure, source);
  for (size_t i = 0; i < closure->count && status == KJIT_OK; i++)
    status = scan(closure, closure->files[i], collect_include);
  return status == KJIT_OK ? check_required(closure) : status;
}

kjit_status include_closure_seal(const struct include_closure *closure, struct source_set *set,
                                 struct source_file **files, kjit_error *error) {
  struct source_file *list = mem_alloc_array(closure->mem, closure->count, sizeof *list);
  *files = list;
  if (!list) return error_no_memory(error);
  for (size_t i = 0; i < closure->count; i++) {
    const struct closure_file *file = closure->files[i];
    list[i] = (struct source_file){.name = file->name, .text = file->text, .bytes = file->bytes};
  }
  return source_set_seal(set, list, closure->count, closure->mem) ? KJIT_OK : error_no_memory(error);
}

void include_closure_finish(struct include_closure *closure) {
  HASH_CLEAR(hh, closure->by_name);
  for (size_t i = 0; i < closure->count; i++)
    free_file(closure->mem, closure->files[i]);
  mem_free(closure->mem, closure->files);
  library_headers_finish(&closure->library, closure->mem);
  closure->files = NULL;
  closure->count = closure->capacity = 0;
}
