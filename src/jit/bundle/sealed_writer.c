/* Making a sealed program from requests.
 *
 * sealed_writer_add() writes each request as a unit of the index and takes a copy of each file that is new by name and
 * digest: units of several architectures and sources share most of their files. A request that differs from the unit
 * before it by its entry alone becomes another entry of that unit. sealed_writer_build() writes the index and the texts
 * and packs each into a frame.
 *
 * Compressing is the caller's function, because the library contains only zstd's decompressor. A writer belongs to one
 * thread. */
#include "jit/bundle/sealed_writer.h"

#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/files/frame.h"
#include "base/text.h"
#include "jit/key/key.h"

struct written_file {
  char *name; /* mem_free */
  char *text; /* mem_free; with a NUL behind it */
  size_t bytes;
  struct digest digest;
};

struct written_unit {
  struct text head;    /* label, target, options, names, prologue */
  struct text entries; /* the fields of its entries */
  struct text files;   /* the numbers of its files */
};

struct sealed_writer {
  const struct mem *mem;
  kjit_compress_fn compress;
  void *user;
  struct written_file *files;
  size_t file_count, file_capacity;
  struct written_unit *units;
  size_t unit_count, unit_capacity;
};

struct sealed_writer *sealed_writer_create(const struct mem *mem, kjit_compress_fn compress, void *user) {
  struct sealed_writer *writer = mem_alloc(mem, sizeof *writer);
  if (!writer) return NULL;
  writer->mem = mem;
  writer->compress = compress;
  writer->user = user;
  return writer;
}

static void unit_finish(struct written_unit *unit) {
  text_finish(&unit->head);
  text_finish(&unit->entries);
  text_finish(&unit->files);
}

void sealed_writer_destroy(struct sealed_writer *writer) {
  if (!writer) return;
  for (size_t i = 0; i < writer->file_count; i++) {
    mem_free(writer->mem, writer->files[i].name);
    mem_free(writer->mem, writer->files[i].text);
  }
  for (size_t i = 0; i < writer->unit_count; i++)
    unit_finish(&writer->units[i]);
  mem_free(writer->mem, writer->files);
  mem_free(writer->mem, writer->units);
  mem_free(writer->mem, writer);
}

static void put_field(struct text *text, const char *tag, const char *value) {
  key_put_field(text, tag, value, strlen(value));
}

/* -- Adding ------------------------------------------------------------------------------------------------------- */

/* The number of a file, which is added when it is new. */
static kjit_status add_file(struct sealed_writer *writer, const struct source_file *file, size_t *number,
                            kjit_error *error) {
  for (*number = 0; *number < writer->file_count; ++*number) {
    const struct written_file *known = &writer->files[*number];
    if (digest_equal(&known->digest, &file->digest) && !strcmp(known->name, file->name)) return KJIT_OK;
  }
  if (writer->file_count >= SEALED_MAX_FILES)
    return error_set(error, KJIT_ERR_UNSUPPORTED, "a sealed program has at most %zu files", SEALED_MAX_FILES);
  struct written_file *files =
      mem_grow(writer->mem, writer->files, writer->file_count, &writer->file_capacity, sizeof *files);
  if (!files) return error_no_memory(error);
  writer->files = files;
  struct written_file *made = &files[writer->file_count++];
  *made = (struct written_file){.name = mem_strdup(writer->mem, file->name),
                                .text = mem_duplicate(writer->mem, file->text, file->bytes),
                                .bytes = file->bytes,
                                .digest = file->digest};
  return made->name && made->text ? KJIT_OK : error_no_memory(error);
}

static kjit_status fill_unit(struct sealed_writer *writer, struct written_unit *unit, const struct jit_request *request,
                             const struct source_set *sources, kjit_error *error) {
  text_init(&unit->head, writer->mem, SEALED_MAX_INDEX_BYTES);
  text_init(&unit->entries, writer->mem, SEALED_MAX_INDEX_BYTES);
  text_init(&unit->files, writer->mem, SEALED_MAX_INDEX_BYTES);
  put_field(&unit->head, SEALED_TAG_LABEL, request->label);
  put_field(&unit->head, SEALED_TAG_TARGET, request->target.name);
  for (size_t i = 0; i < request->option_count; i++)
    put_field(&unit->head, SEALED_TAG_OPTION, request->options[i]);
  for (size_t i = 0; i < request->name_count; i++)
    put_field(&unit->head, SEALED_TAG_NAME, request->names[i]);
  put_field(&unit->head, SEALED_TAG_PROLOGUE, request->prologue);
  put_field(&unit->entries, SEALED_TAG_ENTRY, request->entry);
  for (size_t i = 0; i < sources->count; i++) {
    size_t number;
    const kjit_status status = add_file(writer, &sources->files[i], &number, error);
    if (status != KJIT_OK) return status;
    text_appendf(&unit->files, i ? " %zu" : "%zu", number);
  }
  return unit->head.failed || unit->entries.failed || unit->files.failed ? error_no_memory(error) : KJIT_OK;
}

static bool text_equal(const struct text *a, const struct text *b) {
  return a->bytes == b->bytes && !memcmp(a->data, b->data, a->bytes);
}

static bool has_entry(const struct text *entries, const char *field) {
  const char *at = entries->data;
  while ((at = strstr(at, field)) && at != entries->data && at[-1] != '\n')
    at++;
  return at != NULL;
}

/* True when an earlier unit differs by its entries alone; it has the new one's entry then too. */
static bool join(struct sealed_writer *writer, const struct written_unit *made) {
  for (size_t i = 0; i < writer->unit_count; i++) {
    struct written_unit *unit = &writer->units[i];
    if (!text_equal(&unit->head, &made->head) || !text_equal(&unit->files, &made->files)) continue;
    if (!has_entry(&unit->entries, made->entries.data)) text_append(&unit->entries, made->entries.data);
    return true;
  }
  return false;
}

kjit_status sealed_writer_add(struct sealed_writer *writer, const struct jit_request *request,
                              const struct source_set *sources, kjit_error *error) {
  struct written_unit made = {0};
  struct written_unit *units = NULL;
  kjit_status status = fill_unit(writer, &made, request, sources, error);
  if (status != KJIT_OK || join(writer, &made)) goto done;
  if (writer->unit_count >= SEALED_MAX_UNITS) {
    status = error_set(error, KJIT_ERR_UNSUPPORTED, "a sealed program has at most %d units", SEALED_MAX_UNITS);
    goto done;
  }
  units = mem_grow(writer->mem, writer->units, writer->unit_count, &writer->unit_capacity, sizeof *units);
  if (!units) {
    status = error_no_memory(error);
    goto done;
  }
  writer->units = units;
  writer->units[writer->unit_count++] = made;
  made = (struct written_unit){0};

done:
  if (made.head.mem) unit_finish(&made);
  return status;
}

/* -- Writing ------------------------------------------------------------------------------------------------------ */

static void write_index(const struct sealed_writer *writer, struct text *index) {
  text_append(index, SEALED_INDEX_HEAD);
  for (size_t i = 0; i < writer->file_count; i++) {
    char hex[DIGEST_HEX_BYTES], length[24];
    struct text number;
    digest_to_hex(&writer->files[i].digest, hex);
    text_init_fixed(&number, length, sizeof length);
    text_appendf(&number, "%zu", writer->files[i].bytes);
    put_field(index, SEALED_TAG_SOURCE, writer->files[i].name);
    put_field(index, SEALED_TAG_DIGEST, hex);
    put_field(index, SEALED_TAG_LENGTH, length);
  }
  for (size_t i = 0; i < writer->unit_count; i++) {
    text_append(index, writer->units[i].head.data);
    text_append(index, writer->units[i].entries.data);
    put_field(index, SEALED_TAG_FILES, writer->units[i].files.data);
  }
}

static void write_texts(const struct sealed_writer *writer, struct text *texts) {
  for (size_t i = 0; i < writer->file_count; i++)
    text_append_bytes(texts, writer->files[i].text, writer->files[i].bytes + 1);
}

/* Pack a text to a frame at `out`, where frame_stored_bytes() fit. 0: the compressor wrote past its room. */
static size_t pack(const struct sealed_writer *writer, const struct text *text, uint8_t *out) {
  const size_t room = frame_stored_bytes(text->bytes);
  size_t packed = 0;
  if (writer->compress) packed = writer->compress(writer->user, NULL, 0, text->data, text->bytes, out, room);
  if (packed > room) return 0;
  if (packed) return packed;
  frame_store(text->data, text->bytes, out);
  return room;
}

static kjit_status lay_out(const struct sealed_writer *writer, const struct text *index, const struct text *texts,
                           void **data, size_t *bytes, kjit_error *error) {
  struct digest digest;
  const size_t room = frame_stored_bytes(index->bytes) + (texts->bytes ? frame_stored_bytes(texts->bytes) : 0);
  uint8_t *out = mem_alloc(writer->mem, SEALED_HEAD_BYTES + room);
  if (!out) return error_no_memory(error);
  *data = out;
  uint8_t *const at = out + SEALED_HEAD_BYTES;
  const size_t packed = pack(writer, index, at);
  const size_t more = packed && texts->bytes ? pack(writer, texts, at + packed) : 0;
  if (!packed || (texts->bytes && !more))
    return error_set(error, KJIT_ERR_INTERNAL, "the compressor wrote past its room");
  *bytes = SEALED_HEAD_BYTES + packed + more;
  memcpy(out, SEALED_MAGIC, SEALED_MAGIC_BYTES);
  bytes_put_u32(out + SEALED_AT_VERSION, SEALED_VERSION);
  bytes_put_u32(out + SEALED_AT_HEAD_BYTES, SEALED_HEAD_BYTES);
  bytes_put_u64(out + SEALED_AT_BODY_BYTES, *bytes);
  bytes_put_u32(out + SEALED_AT_INDEX_PACKED, (uint32_t)packed);
  bytes_put_u32(out + SEALED_AT_INDEX_BYTES, (uint32_t)index->bytes);
  digest_of(&digest, at, packed);
  memcpy(out + SEALED_AT_INDEX_DIGEST, digest.bytes, DIGEST_BYTES);
  if (!more) return KJIT_OK;
  digest_of(&digest, at + packed, more);
  memcpy(out + SEALED_AT_TEXTS_DIGEST, digest.bytes, DIGEST_BYTES);
  return KJIT_OK;
}

kjit_status sealed_writer_build(struct sealed_writer *writer, bool with_texts, void **data, size_t *bytes,
                                kjit_error *error) {
  struct text index, texts;
  *data = NULL;
  *bytes = 0;
  if (!writer->unit_count) return error_invalid(error, "sealer", "holds no kernel; add a request first");
  text_init(&index, writer->mem, SEALED_MAX_INDEX_BYTES);
  text_init(&texts, writer->mem, SEALED_MAX_BYTES / 2);
  write_index(writer, &index);
  if (with_texts) write_texts(writer, &texts);
  kjit_status status = KJIT_OK;
  if (index.failed || texts.failed)
    status = error_set(error, KJIT_ERR_UNSUPPORTED,
                       "the sources are larger than a sealed program may be, or memory has run out");
  if (status == KJIT_OK) status = lay_out(writer, &index, &texts, data, bytes, error);
  text_finish(&index);
  text_finish(&texts);
  if (status == KJIT_OK) return KJIT_OK;
  mem_free(writer->mem, *data);
  *data = NULL;
  return status;
}
