/* Reading a recorded request.
 *
 * 1. The path's last part must be a digest and ".request"; every other name is a digest out of that file, so no text
 *    can lead to a file of another folder, and symbolic links are not followed (file_ops.h).
 * 2. The file's content must have the digest that its name says. Its fields become a struct jit_request.
 * 3. The key of that request is made, and must be the recorded text byte for byte. So whatever this reader overlooked
 *    or another version of kjit would have written otherwise is refused, and the key is the one that was recorded.
 * 4. The sources' texts are read when a compile needs them. Each must have its digest. A walk through their #includes
 *    must end in these texts alone, because the compiler would read any other file that they name.
 *
 * A struct recorded belongs to one thread. */
#include "jit/record/recorded.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "jit/key/key.h"
#include "jit/key/key_reader.h"
#include "jit/record/record_sources.h"
#include "jit/request/compile_options.h"

/* What record_sources() can have written, and the bounds of a source's text and of a request's parts. */
#define REQUEST_FILE_MAX (2 * KEY_MAX_BYTES)
#define CONTENT_MAX      ((size_t)256 << 20)
#define ARENA_MAX        ((size_t)64 << 20)

/* -- Files -------------------------------------------------------------------------------------------------------- */

static kjit_status refuse(kjit_status status, const char *name, const char *what, kjit_error *error) {
  return error_set(error, status, "%.200s: %s", name, what);
}

static kjit_status io_failure(const char *name, int done, kjit_error *error) {
  if (done == -ENOENT)
    return refuse(KJIT_ERR_NOT_FOUND, name, "is not there: a manifest is copied with the folder of its sources", error);
  const kjit_status status = done == -ENOMEM ? KJIT_ERR_NO_MEMORY : KJIT_ERR_IO;
  return error_set_cause(error, status, KJIT_CAUSE_ERRNO, -done, "%.200s: %s", name,
                         done == -ELOOP ? "is a symbolic link, which is not followed" : strerror(-done));
}

static int read_open(const struct recorded *recorded, int file, size_t limit, char **data, size_t *bytes) {
  struct stat status;
  int done = recorded->ops->stat(recorded->ops->user, file, &status);
  if (done < 0) return done;
  if (!S_ISREG(status.st_mode)) return -EINVAL;
  if ((uint64_t)status.st_size > limit) return -EFBIG;
  *bytes = (size_t)status.st_size;
  *data = mem_alloc(recorded->mem, *bytes + 1);
  if (!*data) return -ENOMEM;
  (*data)[*bytes] = '\0';
  return file_read_all(recorded->ops, file, *data, *bytes, 0);
}

/* A file of the folder whose content must have this digest; freed by the caller, also after a failure. */
static kjit_status read_content(const struct recorded *recorded, const char *name, const struct digest *digest,
                                size_t limit, char **data, size_t *bytes, kjit_error *error) {
  const struct file_ops *const ops = recorded->ops;
  struct digest found;
  *data = NULL;
  const int file = ops->open(ops->user, recorded->folder, name, O_RDONLY | O_NONBLOCK, 0);
  if (file < 0) return io_failure(name, file, error);
  const int done = read_open(recorded, file, limit, data, bytes);
  (void)ops->close(ops->user, file);
  if (done < 0) return io_failure(name, done, error);
  digest_of(&found, *data, *bytes);
  if (digest_equal(&found, digest)) return KJIT_OK;
  return refuse(KJIT_ERR_CORRUPT, name, "is damaged: its content has another digest than its name says", error);
}

static kjit_status open_folder(struct recorded *recorded, const char *path, const char *name, kjit_error *error) {
  const struct file_ops *const ops = recorded->ops;
  const size_t bytes = (size_t)(name - path);
  const char *const folder = bytes ? arena_copy(&recorded->arena, path, bytes) : ".";
  if (!folder) return error_no_memory(error);
  recorded->folder = ops->open_path(ops->user, folder, O_RDONLY | O_DIRECTORY, 0);
  return recorded->folder < 0 ? io_failure(folder, recorded->folder, error) : KJIT_OK;
}

static bool name_read(const char *name, struct digest *digest) {
  const size_t hex = DIGEST_HEX_BYTES - 1;
  return strlen(name) == hex + strlen(RECORDED_SUFFIX) && !strcmp(name + hex, RECORDED_SUFFIX) &&
         digest_from_hex(digest, name, hex);
}

/* -- Fields ------------------------------------------------------------------------------------------------------- */

/* Room for as many names, options, sources or parts as the file can have: each field ends in a line break. */
static bool make_room(struct recorded *recorded, size_t bytes) {
  size_t most = 1;
  for (size_t i = 0; i < bytes; i++)
    most += recorded->file[i] == '\n';
  recorded->names = arena_alloc_array(&recorded->arena, most, sizeof *recorded->names);
  recorded->options = arena_alloc_array(&recorded->arena, most, sizeof *recorded->options);
  recorded->files = arena_alloc_array(&recorded->arena, most, sizeof *recorded->files);
  recorded->parts = arena_alloc_array(&recorded->arena, most, sizeof *recorded->parts);
  return !recorded->arena.failed;
}

static uint32_t part_kind(const char *word) {
  for (uint32_t kind = KJIT_PART_CUBIN; kind <= KJIT_PART_FATBIN; kind++)
    if (!strcmp(word, jit_part_kind_name(kind))) return kind;
  return 0;
}

/* A digest belongs to the source or part in front of it. */
static bool take_digest(struct recorded *recorded, const char *value, bool of_part) {
  struct jit_request *const request = &recorded->request;
  if (of_part && request->part_count)
    return digest_from_hex(&recorded->parts[request->part_count - 1].digest, value, strlen(value));
  return !of_part && recorded->file_count &&
         digest_from_hex(&recorded->files[recorded->file_count - 1].digest, value, strlen(value));
}

/* Take a field that may stand more than once, or one that only some requests have. */
static bool take_repeated(struct recorded *recorded, const struct key_field *field, const char *value, bool *of_part) {
  struct jit_request *const request = &recorded->request;
  if (key_field_is(field, KEY_TAG_DIGEST)) return take_digest(recorded, value, *of_part);
  *of_part = key_field_is(field, KEY_TAG_PART);
  if (*of_part)
    recorded->parts[request->part_count++] = (struct jit_part){.name = "a recorded part", .kind = part_kind(value)};
  else if (key_field_is(field, KEY_TAG_SOURCE))
    recorded->files[recorded->file_count++].name = value;
  else if (key_field_is(field, KEY_TAG_NAME))
    recorded->names[request->name_count++] = value;
  else if (key_field_is(field, KEY_TAG_OPTION))
    recorded->options[request->option_count++] = value;
  else if (key_field_is(field, KEY_TAG_OUTPUT))
    request->flags |= strcmp(value, KEY_OUTPUT_WHOLE) ? KJIT_BUILD_OBJECT : KJIT_BUILD_KEEP_UNUSED;
  else
    return key_field_is(field, KEY_TAG_FORMAT); /* compared as text in the end */
  return true;
}

static bool take_field(struct recorded *recorded, const struct key_field *field, bool *of_part) {
  struct jit_request *const request = &recorded->request;
  const char *const value = arena_copy(&recorded->arena, field->value, field->value_bytes);
  if (!value || strlen(value) != field->value_bytes) return false;
  if (key_field_is(field, RECORDED_TAG_FAMILY))
    request->family = value;
  else if (key_field_is(field, RECORDED_TAG_LABEL))
    request->label = value;
  else if (key_field_is(field, KEY_TAG_ENTRY))
    request->entry = value;
  else if (key_field_is(field, KEY_TAG_PROLOGUE))
    request->prologue = value;
  else if (key_field_is(field, KEY_TAG_TARGET))
    return target_parse(&request->target, value, NULL) == KJIT_OK;
  else
    return take_repeated(recorded, field, value, of_part);
  return true;
}

/* Head, family and label, and then the key text, which ends the file and is given to the caller. */
static bool read_fields(struct recorded *recorded, size_t bytes, const char **key_text, size_t *key_bytes) {
  const size_t head = sizeof RECORDED_HEAD - 1;
  struct key_reader reader = {recorded->file, bytes, head, 1};
  struct key_field field;
  bool of_part = false;
  if (bytes < head || memcmp(recorded->file, RECORDED_HEAD, head) != 0) return false;
  for (int i = 0; i < 2; i++)
    if (!key_reader_next(&reader, &field) || !take_field(recorded, &field, &of_part)) return false;
  *key_text = recorded->file + reader.at;
  *key_bytes = bytes - reader.at;
  key_reader_init(&reader, *key_text, *key_bytes);
  while (key_reader_next(&reader, &field))
    if (!take_field(recorded, &field, &of_part)) return false;
  const struct jit_request *const request = &recorded->request;
  return reader.sound && request->family && request->label && request->entry && request->prologue &&
         request->target.name[0] && recorded->file_count + request->part_count > 0;
}

/* -- The request -------------------------------------------------------------------------------------------------- */

/* The standing options stand in the key in front of the request's own. */
static bool drop_standing(struct recorded *recorded) {
  const char *const *standing = NULL;
  const size_t count = compile_standing_options(&standing);
  if (recorded->request.option_count < count) return false;
  for (size_t i = 0; i < count; i++)
    if (strcmp(recorded->options[i], standing[i]) != 0) return false;
  recorded->options += count;
  recorded->request.option_count -= count;
  return true;
}

static bool is_recorded_key(const struct recorded *recorded, const char *text, size_t bytes) {
  struct key key;
  const bool made = key_make(&key, recorded->mem, &recorded->request, NULL, NULL) == KJIT_OK;
  const bool same = made && key.request_bytes == bytes && !memcmp(key.text.data, text, bytes);
  key_finish(&key);
  return same;
}

static kjit_status finish_request(struct recorded *recorded, const char *name, const char *text, size_t bytes,
                                  kjit_error *error) {
  struct jit_request *const request = &recorded->request;
  kjit_status status = KJIT_OK;
  if (!drop_standing(recorded))
    return refuse(KJIT_ERR_UNSUPPORTED, name, "was written by another version of kjit; record it again", error);
  for (size_t i = 0; i < request->option_count && status == KJIT_OK; i++)
    status = compile_option_check(recorded->options[i], i, error);
  if (status != KJIT_OK) return status;
  request->names = recorded->names;
  request->options = recorded->options;
  request->parts = recorded->parts;
  request->sources = &recorded->set;
  /* A request of parts alone has an empty set. */
  if (recorded->file_count && !source_set_seal(&recorded->set, recorded->files, recorded->file_count, recorded->mem))
    return error_no_memory(error);
  recorded->set.withheld = recorded->file_count > 0;
  if (is_recorded_key(recorded, text, bytes)) return KJIT_OK;
  return refuse(KJIT_ERR_UNSUPPORTED, name,
                "makes another key here, as one of another version of kjit does; record it again", error);
}

static kjit_status read_parts(struct recorded *recorded, kjit_error *error) {
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < recorded->request.part_count && status == KJIT_OK; i++) {
    struct jit_part *const part = &recorded->parts[i];
    char name[DIGEST_HEX_BYTES], *data;
    digest_to_hex(&part->digest, name);
    status = read_content(recorded, name, &part->digest, CONTENT_MAX, &data, &part->bytes, error);
    part->data = data;
  }
  return status;
}

kjit_status recorded_open(struct recorded *recorded, const struct mem *mem, const struct file_ops *ops,
                          const char *path, kjit_error *error) {
  const char *const slash = strrchr(path, '/'), *const name = slash ? slash + 1 : path;
  const char *text = NULL;
  size_t bytes = 0, text_bytes = 0;
  struct digest digest;
  *recorded = (struct recorded){.mem = mem, .ops = ops, .folder = -1};
  arena_init(&recorded->arena, mem, ARENA_MAX);
  if (!name_read(name, &digest))
    return refuse(KJIT_ERR_INVALID_ARG, path, "a recorded request is named by 64 hexadecimal digits and .request",
                  error);
  kjit_status status = open_folder(recorded, path, name, error);
  if (status == KJIT_OK)
    status = read_content(recorded, name, &digest, REQUEST_FILE_MAX, &recorded->file, &bytes, error);
  if (status != KJIT_OK) return status;
  if (!make_room(recorded, bytes)) return error_no_memory(error);
  if (!read_fields(recorded, bytes, &text, &text_bytes))
    return refuse(KJIT_ERR_CORRUPT, name, "is not a recorded request", error);
  status = finish_request(recorded, name, text, text_bytes, error);
  return status == KJIT_OK ? read_parts(recorded, error) : status;
}

void recorded_finish(struct recorded *recorded) {
  for (size_t i = 0; recorded->texts && i < recorded->file_count; i++)
    mem_free(recorded->mem, (char *)(uintptr_t)recorded->texts[i].text);
  for (size_t i = 0; i < recorded->request.part_count; i++)
    mem_free(recorded->mem, (void *)(uintptr_t)recorded->parts[i].data);
  if (recorded->folder >= 0) (void)recorded->ops->close(recorded->ops->user, recorded->folder);
  mem_free(recorded->mem, recorded->file);
  arena_finish(&recorded->arena);
  *recorded = (struct recorded){.folder = -1};
}

/* -- Texts -------------------------------------------------------------------------------------------------------- */

/* The first file on disk that the texts lead to; NULL when there is none. */
static const char *outside(const struct include_closure *closure) {
  const struct include_watch *watches;
  size_t count = 0;
  if (!include_closure_watches(closure, &watches, &count)) return "?";
  for (size_t i = 0; i < count; i++)
    if (watches[i].stamp.kind == FILE_STAMP_FILE) return watches[i].path;
  return NULL;
}

static kjit_status check_includes(const struct recorded *recorded, unsigned cuda_version, kjit_error *error) {
  const struct jit_request *const request = &recorded->request;
  const size_t count = recorded->file_count;
  kjit_source *sources = mem_alloc_array(recorded->mem, count, sizeof *sources);
  if (!sources) return error_no_memory(error);
  for (size_t i = 0; i < count; i++)
    sources[i] = (kjit_source){recorded->texts[i].name, recorded->texts[i].text, recorded->texts[i].bytes};
  const struct include_search search = {.headers = sources + 1, .header_count = count - 1, .no_shims = 1};
  const struct include_terms terms = {.prologue = request->prologue,
                                      .target = &request->target,
                                      .options = request->options,
                                      .option_count = request->option_count,
                                      .cuda_version = cuda_version,
                                      .open_ended = 1,
                                      .everything = 1};
  struct include_closure closure;
  kjit_status status = include_closure_collect(&closure, recorded->mem, &search, &terms, &sources[0], error);
  const char *const path = status == KJIT_OK ? outside(&closure) : NULL;
  if (path)
    status = error_set(error, KJIT_ERR_UNSUPPORTED, "%.160s: includes %.200s, which was not recorded with it",
                       request->label, path);
  include_closure_finish(&closure);
  mem_free(recorded->mem, sources);
  return status;
}

kjit_status recorded_read_texts(struct recorded *recorded, unsigned cuda_version, const struct source_set **out,
                                kjit_error *error) {
  kjit_status status = KJIT_OK;
  *out = recorded->texts ? &recorded->text_set : NULL;
  if (recorded->texts) return KJIT_OK;
  recorded->texts = arena_alloc_array(&recorded->arena, recorded->file_count, sizeof *recorded->texts);
  if (!recorded->texts) return error_no_memory(error);
  for (size_t i = 0; i < recorded->file_count && status == KJIT_OK; i++) {
    struct source_file *const file = &recorded->texts[i];
    char name[DIGEST_HEX_BYTES], *data = NULL;
    *file = recorded->files[i];
    digest_to_hex(&file->digest, name);
    status = read_content(recorded, name, &file->digest, CONTENT_MAX, &data, &file->bytes, error);
    file->text = data;
    if (status == KJIT_OK && data && memchr(data, '\0', file->bytes))
      status = refuse(KJIT_ERR_CORRUPT, name, "has a NUL byte, where the compiler would stop", error);
  }
  if (status == KJIT_OK) status = check_includes(recorded, cuda_version, error);
  if (status != KJIT_OK) return status;
  recorded->text_set = recorded->set;
  recorded->text_set.files = recorded->texts;
  recorded->text_set.withheld = 0;
  *out = &recorded->text_set;
  return KJIT_OK;
}
