/* The search of one collection. Every path is asked for once and its answer kept, so that one collection sees one state
 * of the file system. A folder that does not exist spares the names below it. Folders where a name was missing are
 * kept with their stamps: a file that appears there later changes the stamp. One finder belongs to one thread. */
#include "jit/source/include_find.h"

#include <stdio.h>
#include <string.h>

#include "jit/source/std_shims.h"

#include "base/table.h"

struct looked_at {
  UT_hash_handle hh;
  const char *path;
  struct file_stamp stamp;
  bool missed; /* a folder in which a name was not found */
};

void include_finder_init(struct include_finder *finder, const struct mem *mem, struct arena *arena,
                         const struct include_search *search) {
  *finder = (struct include_finder){.mem = mem, .arena = arena, .search = search};
}

void include_finder_finish(struct include_finder *finder) {
  const struct mem *mem = finder->mem;
  HASH_CLEAR(hh, finder->looked_at);
  library_headers_finish(&finder->library, mem);
}

static struct looked_at *look_at(struct include_finder *finder, const char *path, size_t bytes) {
  const struct mem *mem = finder->mem;
  bool added = true;
  struct looked_at *entry = NULL;
  HASH_FIND(hh, finder->looked_at, path, bytes, entry);
  if (entry) return entry;
  entry = arena_alloc(finder->arena, sizeof *entry);
  if (!entry) return NULL;
  entry->path = arena_copy(finder->arena, path, bytes);
  if (!entry->path) return NULL;
  file_stamp_read(entry->path, &entry->stamp);
  HASH_ADD_KEYPTR(hh, finder->looked_at, entry->path, bytes, entry);
  if (!added) finder->arena->failed = true;
  return finder->arena->failed ? NULL : entry;
}

/* Bytes of the folder's part of a path, without the slash but for "/" itself. */
static size_t folder_bytes(const char *path, size_t bytes) {
  while (bytes && path[bytes - 1] != '/')
    bytes--;
  while (bytes > 1 && path[bytes - 1] == '/')
    bytes--;
  return bytes;
}

/* The nearest folder above `path` that exists; "." for a relative path without one. */
static struct looked_at *nearest_folder(struct include_finder *finder, const char *path) {
  size_t bytes = strlen(path);
  for (;;) {
    bytes = folder_bytes(path, bytes);
    struct looked_at *folder = bytes ? look_at(finder, path, bytes) : look_at(finder, ".", 1);
    if (!folder || folder->stamp.kind == FILE_STAMP_FOLDER || !bytes) return folder;
    if (bytes == 1 && *path == '/') return folder;
  }
}

/* True when there is a regular file at this path. */
static bool is_file(struct include_finder *finder, const char *path, struct file_stamp *stamp) {
  const size_t bytes = folder_bytes(path, strlen(path));
  const struct looked_at *folder = bytes ? look_at(finder, path, bytes) : NULL;
  if (!bytes || (folder && folder->stamp.kind == FILE_STAMP_FOLDER)) {
    const struct looked_at *file = look_at(finder, path, strlen(path));
    if (file && file->stamp.kind == FILE_STAMP_FILE) {
      *stamp = file->stamp;
      return true;
    }
  }
  struct looked_at *nearest = nearest_folder(finder, path);
  if (nearest) nearest->missed = 1;
  return false;
}

static const kjit_source *find_header(const struct include_search *search, const char *name) {
  for (size_t i = 0; i < search->header_count; i++)
    if (!strcmp(search->headers[i].name, name)) return &search->headers[i];
  return NULL;
}

/* "<folder of place>/<name>" with "." and "x/.." taken out, as names in memory are compared as text. False when it does
 * not fit. */
static bool join_name(char out[INCLUDE_PATH_LIMIT], const char *place, const char *name) {
  const char *slash = strrchr(place, '/');
  const int length = snprintf(out, INCLUDE_PATH_LIMIT, "%.*s%s", slash ? (int)(slash - place + 1) : 0, place, name);
  if (length < 0 || length >= INCLUDE_PATH_LIMIT) return false;
  char *to = out, *floor = out; /* below the floor are ".." that nothing cancels */
  for (const char *from = out; *from;) {
    const size_t bytes = strcspn(from, "/"), step = bytes + (from[bytes] == '/');
    const bool up = bytes == 2 && !memcmp(from, "..", 2);
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

static bool join_path(char out[INCLUDE_PATH_LIMIT], const char *folder, size_t bytes, const char *name) {
  if (bytes > INCLUDE_PATH_LIMIT) return false;
  const int length = snprintf(out, INCLUDE_PATH_LIMIT, "%.*s/%s", (int)bytes, folder, name);
  return length > 0 && length < INCLUDE_PATH_LIMIT;
}

static bool found_in_memory(struct include_place *place, const kjit_source *header, enum include_kind kind) {
  if (!header) return false;
  place->kind = kind;
  place->header = header;
  return snprintf(place->path, sizeof place->path, "%s", header->name) < (int)sizeof place->path;
}

/* Look for a quoted name beside the file that includes it. The main source is in no folder. */
static bool find_beside(struct include_finder *finder, const struct include_from *from, const char *name,
                        struct include_place *place) {
  const char *slash = strrchr(from->path, '/');
  if (from->kind == INCLUDE_MAIN || from->kind == INCLUDE_MEMORY) {
    if (!join_name(place->path, from->path, name)) return false;
    return found_in_memory(place, find_header(finder->search, place->path), INCLUDE_MEMORY);
  }
  if (from->kind == INCLUDE_SHIM || from->kind == INCLUDE_LIBRARY || !slash) return false;
  place->kind = INCLUDE_BESIDE;
  return join_path(place->path, from->path, (size_t)(slash - from->path), name) &&
         is_file(finder, place->path, &place->stamp);
}

static bool find_in_folders(struct include_finder *finder, size_t first, const char *name,
                            struct include_place *place) {
  const struct include_search *search = finder->search;
  for (size_t i = first; i < search->dir_count; i++) {
    place->kind = INCLUDE_FOLDER;
    place->folder = i;
    if (join_path(place->path, search->dirs[i], strlen(search->dirs[i]), name) &&
        is_file(finder, place->path, &place->stamp))
      return true;
  }
  return false;
}

/* Look among kjit's own headers, after everything that the caller has given under that name. */
static bool find_in_library(struct include_finder *finder, const char *name, struct include_place *place) {
  kjit_source *header = arena_alloc(finder->arena, sizeof *header);
  if (!header) return false;
  const kjit_status status = library_header_find(&finder->library, finder->mem, name, header);
  if (status == KJIT_ERR_NO_MEMORY) finder->arena->failed = 1;
  finder->withheld |= status == KJIT_ERR_UNSUPPORTED;
  return status == KJIT_OK && found_in_memory(place, header, INCLUDE_LIBRARY);
}

/* Look among the stand-ins for the standard library. Those that use cuda/std are left out when it is not there. */
static bool find_shim(struct include_finder *finder, const char *name, struct include_place *place) {
  struct include_place base;
  if (finder->search->no_shims) return false;
  const struct std_shim *shim = std_shim_find(name);
  if (!shim) return false;
  const bool has_base = shim->base && find_in_folders(finder, 0, shim->base, &base);
  const kjit_source *text = has_base && shim->over_base.text ? &shim->over_base : &shim->alone;
  return text->text && found_in_memory(place, text, INCLUDE_SHIM);
}

/* Headers in memory come first whatever the quotes, because bare NVRTC looks them up by name before any folder.
 * #include_next goes on behind the folder of the file that has it, and skips both memory and that folder. */
bool include_find(struct include_finder *finder, const struct include_from *from, const char *name, bool angled,
                  bool next, struct include_place *place) {
  size_t first = 0;
  place->header = NULL;
  if (*name == '/') {
    place->kind = INCLUDE_ABSOLUTE;
    return snprintf(place->path, sizeof place->path, "%s", name) < (int)sizeof place->path &&
           is_file(finder, place->path, &place->stamp);
  }
  if (from->kind == INCLUDE_MAIN) next = 0; /* the compiler warns, and takes it for #include */
  if (!next && found_in_memory(place, find_header(finder->search, name), INCLUDE_MEMORY)) return true;
  if (!next && !angled && find_beside(finder, from, name, place)) return true;
  if (next && from->kind == INCLUDE_FOLDER) first = from->folder + 1;
  if (next && from->kind == INCLUDE_SHIM) return false;
  return find_in_folders(finder, first, name, place) || find_in_library(finder, name, place) ||
         find_shim(finder, name, place);
}

bool include_exists(struct include_finder *finder, const struct include_from *from, const char *name, bool angled,
                    bool next) {
  struct include_place place;
  return include_find(finder, from, name, angled, next, &place) && place.kind != INCLUDE_SHIM;
}

size_t include_folder_count(const struct include_finder *finder) {
  size_t count = 0;
  for (const struct looked_at *entry = finder->looked_at; entry; entry = entry->hh.next)
    count += entry->missed;
  return count;
}

void include_folders(const struct include_finder *finder, struct include_watch *watches) {
  for (const struct looked_at *entry = finder->looked_at; entry; entry = entry->hh.next)
    if (entry->missed) *watches++ = (struct include_watch){.path = entry->path, .stamp = entry->stamp};
}
