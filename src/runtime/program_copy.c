/* A copy of a build request with all its texts in one block, for programs, which outlive the caller's. Pure functions;
 * any thread may call. */
#include <stdint.h>
#include <string.h>

#include "runtime/program.h"

/* Pieces are cut from one block; in a first round `block` is NULL and only sizes are added. */
struct copier {
  char *block;
  size_t used;
};

static void *cut(struct copier *copier, const void *data, size_t bytes, size_t alignment) {
  copier->used = (copier->used + alignment - 1) / alignment * alignment;
  char *to = copier->block ? copier->block + copier->used : NULL;
  if (to && bytes && data) memcpy(to, data, bytes);
  copier->used += bytes;
  return to;
}

static const char *cut_string(struct copier *copier, const char *text) {
  return text ? cut(copier, text, strlen(text) + 1, 1) : NULL;
}

/* A text gets a NUL behind it even when its size is given, because the compiler is handed a string. */
static kjit_source cut_source(struct copier *copier, const kjit_source *source) {
  kjit_source copy = *source;
  copy.name = cut_string(copier, source->name);
  if (!source->text) return copy;
  copy.bytes = source->bytes ? source->bytes : strlen(source->text);
  copy.text = cut(copier, source->text, copy.bytes, 1);
  (void)cut(copier, "", 1, 1);
  return copy;
}

/* The array first, as it is, then each string; in the first round there is no array to write to. */
static const char *const *cut_strings(struct copier *copier, const char *const *strings, size_t count) {
  const char **list = cut(copier, strings, count * sizeof *list, _Alignof(const char *));
  for (size_t i = 0; i < count; i++) {
    const char *copy = cut_string(copier, strings[i]);
    if (list) list[i] = copy;
  }
  return list;
}

static const kjit_source *cut_sources(struct copier *copier, const kjit_source *sources, size_t count) {
  kjit_source *list = cut(copier, sources, count * sizeof *list, _Alignof(kjit_source));
  for (size_t i = 0; i < count; i++) {
    const kjit_source copy = cut_source(copier, &sources[i]);
    if (list) list[i] = copy;
  }
  return list;
}

static const kjit_define *cut_defines(struct copier *copier, const kjit_define *defines, size_t count) {
  kjit_define *list = cut(copier, defines, count * sizeof *list, _Alignof(kjit_define));
  for (size_t i = 0; i < count; i++) {
    const kjit_define copy = {cut_string(copier, defines[i].name), cut_string(copier, defines[i].value)};
    if (list) list[i] = copy;
  }
  return list;
}

/* Bytes to which a part is aligned, because the linker may read the part in words of up to 16 bytes. */
#define PART_ALIGNMENT 16

static const kjit_part *cut_parts(struct copier *copier, const kjit_part *parts, size_t count) {
  kjit_part *list = cut(copier, parts, count * sizeof *list, _Alignof(kjit_part));
  for (size_t i = 0; i < count; i++) {
    kjit_part copy = parts[i];
    if (parts[i].data && !parts[i].bytes && parts[i].kind == KJIT_PART_PTX) copy.bytes = strlen(parts[i].data);
    copy.name = cut_string(copier, parts[i].name);
    copy.data = parts[i].data ? cut(copier, parts[i].data, copy.bytes, PART_ALIGNMENT) : NULL;
    if (list) list[i] = copy;
  }
  return list;
}

static kjit_build_request cut_request(struct copier *copier, const kjit_build_request *request) {
  kjit_build_request copy = *request;
  copy.arch = cut_string(copier, request->arch);
  copy.entry = cut_string(copier, request->entry);
  copy.source = cut_source(copier, &request->source);
  copy.headers = cut_sources(copier, request->headers, request->header_count);
  copy.include_dirs = cut_strings(copier, request->include_dirs, request->include_dir_count);
  copy.defines = cut_defines(copier, request->defines, request->define_count);
  copy.options = cut_strings(copier, request->options, request->option_count);
  copy.names = cut_strings(copier, request->names, request->name_count);
  copy.parts = cut_parts(copier, request->parts, request->part_count);
  return copy;
}

size_t program_copy_bytes(const kjit_build_request *request) {
  struct copier sizes = {NULL, 0};
  (void)cut_request(&sizes, request);
  return sizes.used;
}

kjit_build_request program_copy(const kjit_build_request *request, void *block) {
  struct copier copier = {block, 0};
  return cut_request(&copier, request);
}
