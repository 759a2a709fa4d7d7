/* The messages between a library and its compile workers: written and read, without any input or output of its own.
 *
 * A payload is a row of numbers (little-endian, 4 or 8 bytes) and of byte strings (their size in 8 bytes, the bytes, a
 * NUL). The reader notes the first thing that is wrong and gives zeros and empty strings from then on, so that a
 * function that reads a message tests once, at its end. Everything here is a pure function of its arguments. */
#include "jit/server/protocol.h"

#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "jit/compile/symbols.h"

/* "KJW" and the version of everything in this file. */
#define MAGIC 0x31574a4bu

/* As many as a request may have (include_closure.c, custom_request.c, parts.c) or more: bounds on what is allocated
 * before the strings themselves are seen. */
#define FILES_LIMIT   8192
#define STRINGS_LIMIT 65536 /* options, and names */
#define PARTS_LIMIT   4096

/* ---- Frames ---- */

static void put_u32(struct text *out, uint32_t value) {
  uint8_t bytes[4];
  bytes_put_u32(bytes, value);
  text_append_bytes(out, bytes, sizeof bytes);
}

static void put_u64(struct text *out, uint64_t value) {
  uint8_t bytes[8];
  bytes_put_u64(bytes, value);
  text_append_bytes(out, bytes, sizeof bytes);
}

static void put_bytes(struct text *out, const void *data, size_t bytes) {
  put_u64(out, bytes);
  if (bytes) text_append_bytes(out, data, bytes);
  text_append_bytes(out, "", 1);
}

static void put_string(struct text *out, const char *string) {
  put_bytes(out, string, strlen(string));
}

/* The checksum finds what a bug or a dying process leaves half written; sockets themselves lose nothing. */
void frame_put(struct text *out, enum frame_kind kind, const void *payload, size_t bytes) {
  put_u32(out, MAGIC);
  put_u32(out, (uint32_t)kind);
  put_u64(out, bytes);
  put_u64(out, hash_64(payload, bytes));
  if (bytes) text_append_bytes(out, payload, bytes);
}

bool frame_read_head(struct frame_head *head, const uint8_t *bytes) {
  const uint32_t kind = bytes_get_u32(bytes + 4);
  const uint64_t size = bytes_get_u64(bytes + 8);
  *head = (struct frame_head){(enum frame_kind)kind, (size_t)size, bytes_get_u64(bytes + 16)};
  return bytes_get_u32(bytes) == MAGIC && kind >= FRAME_BEGAN && kind <= FRAME_READY && size <= FRAME_MAX_BYTES;
}

bool frame_is_intact(const struct frame_head *head, const void *payload) {
  return hash_64(payload, head->bytes) == head->checksum;
}

/* ---- Reading a payload ---- */

struct reader {
  const uint8_t *at;
  size_t left;
  const char *fault; /* the first thing that is wrong, static text */
};

/* The next bytes, or NULL from the first fault on. */
static const uint8_t *take(struct reader *reader, uint64_t bytes) {
  if (!reader->fault && bytes > reader->left) reader->fault = "it is cut off";
  if (reader->fault) return NULL;
  const uint8_t *at = reader->at;
  reader->at += bytes;
  reader->left -= (size_t)bytes;
  return at;
}

static uint32_t get_u32(struct reader *reader) {
  const uint8_t *at = take(reader, 4);
  return at ? bytes_get_u32(at) : 0;
}

static uint64_t get_u64(struct reader *reader) {
  const uint8_t *at = take(reader, 8);
  return at ? bytes_get_u64(at) : 0;
}

static const void *get_bytes(struct reader *reader, size_t *bytes) {
  const uint64_t size = get_u64(reader);
  const uint8_t *at = size < FRAME_MAX_BYTES ? take(reader, size + 1) : NULL;
  *bytes = at ? (size_t)size : 0;
  if (at && at[size]) reader->fault = "a string in it has no end";
  if (!at && !reader->fault) reader->fault = "a string in it is too long";
  return reader->fault ? "" : (const void *)at;
}

static const char *get_string(struct reader *reader) {
  size_t bytes;
  const char *string = get_bytes(reader, &bytes);
  if (!reader->fault && strlen(string) != bytes) reader->fault = "a string in it has a NUL inside";
  return reader->fault ? "" : string;
}

/* A count of things of which each takes `least` bytes at least: no allocation is larger than the message allows. */
static uint32_t get_count(struct reader *reader, uint32_t limit, size_t least) {
  const uint32_t count = get_u32(reader);
  if (!reader->fault && (count > limit || count > reader->left / least)) reader->fault = "it counts more than it has";
  return reader->fault ? 0 : count;
}

static const char *end_of(struct reader *reader) {
  if (!reader->fault && reader->left) reader->fault = "something follows its end";
  return reader->fault;
}

static void get_digest(struct reader *reader, struct digest *digest) {
  const uint8_t *at = take(reader, DIGEST_BYTES);
  if (at) memcpy(digest->bytes, at, DIGEST_BYTES);
}

/* ---- Requests ---- */

static void put_strings(struct text *out, const char *const *strings, size_t count) {
  put_u32(out, (uint32_t)count);
  for (size_t i = 0; i < count; i++)
    put_string(out, strings[i]);
}

static void put_parts(struct text *out, const struct jit_request *request) {
  put_u32(out, (uint32_t)request->part_count);
  for (size_t i = 0; i < request->part_count; i++) {
    const struct jit_part *part = &request->parts[i];
    put_u32(out, part->kind);
    put_u32(out, part->name != NULL);
    put_string(out, part->name ? part->name : "");
    put_bytes(out, part->data, part->bytes);
    text_append_bytes(out, part->digest.bytes, DIGEST_BYTES);
  }
}

/* Everything that the compiler reads goes along, because the worker opens no file: what it compiles is what the key
 * covers. */
void wire_request_put(struct text *out, const struct jit_request *request, const char *identity, enum wire_work work,
                      uint64_t memory_bytes) {
  const struct source_set *sources = request->sources;
  put_u32(out, (uint32_t)work);
  put_u64(out, memory_bytes);
  put_string(out, identity);
  put_string(out, request->family);
  put_string(out, request->label);
  put_string(out, request->target.name);
  put_string(out, request->entry);
  put_string(out, request->prologue);
  put_string(out, request->main_path ? request->main_path : "");
  put_u32(out, request->flags & JIT_REQUEST_OUTPUT_FLAGS);
  put_strings(out, request->names, request->name_count);
  put_strings(out, request->options, request->option_count);
  put_u32(out, (uint32_t)sources->count);
  text_append_bytes(out, sources->digest.bytes, DIGEST_BYTES);
  for (size_t i = 0; i < sources->count; i++) {
    put_string(out, sources->files[i].name);
    put_string(out, sources->files[i].path ? sources->files[i].path : sources->files[i].name);
    put_bytes(out, sources->files[i].text, sources->files[i].bytes);
    text_append_bytes(out, sources->files[i].digest.bytes, DIGEST_BYTES);
  }
  put_parts(out, request);
}

/* An array of strings in memory of `mem`; NULL where something is wrong. */
static const char **read_strings(struct reader *reader, const struct mem *mem, size_t *out_count) {
  const uint32_t count = get_count(reader, STRINGS_LIMIT, 9);
  *out_count = 0;
  if (reader->fault) return NULL;
  const char **strings = mem_alloc_array(mem, count, sizeof *strings);
  if (!strings) {
    reader->fault = "there is no memory for it";
    return NULL;
  }
  for (uint32_t i = 0; i < count; i++)
    strings[i] = get_string(reader);
  *out_count = count;
  return strings;
}

/* The part's name was none: its number stands for it in messages. */
static const char *get_part_name(struct reader *reader) {
  const uint32_t named = get_u32(reader);
  const char *name = get_string(reader);
  if (!reader->fault && (named > 1 || (!named && *name))) reader->fault = "a part's name is unsound";
  return named ? name : NULL;
}

static void read_parts(struct wire_request *wire, struct reader *reader, const struct mem *mem) {
  const uint32_t count = get_count(reader, PARTS_LIMIT, 26 + DIGEST_BYTES);
  if (reader->fault) return;
  wire->parts = mem_alloc_array(mem, count, sizeof *wire->parts);
  if (!wire->parts) {
    reader->fault = "there is no memory for it";
    return;
  }
  for (uint32_t i = 0; i < count; i++) {
    struct jit_part *part = &wire->parts[i];
    part->kind = get_u32(reader);
    part->name = get_part_name(reader);
    part->data = get_bytes(reader, &part->bytes);
    get_digest(reader, &part->digest);
    if (!reader->fault && (!*jit_part_kind_name(part->kind) || !part->bytes))
      reader->fault = "a part of it is empty or of no kind";
  }
  wire->request.parts = wire->parts;
  wire->request.part_count = count;
}

/* A file takes 27 bytes at least: three strings of 9 with nothing in them. */
static void read_files(struct wire_request *wire, struct reader *reader, const struct mem *mem) {
  const uint32_t count = get_count(reader, FILES_LIMIT, 27 + DIGEST_BYTES);
  get_digest(reader, &wire->sources.digest);
  if (reader->fault) return;
  wire->files = mem_alloc_array(mem, count, sizeof *wire->files);
  if (!wire->files) {
    reader->fault = "there is no memory for it";
    return;
  }
  for (uint32_t i = 0; i < count; i++) {
    struct source_file *file = &wire->files[i];
    file->name = get_string(reader);
    file->path = get_string(reader);
    file->text = get_bytes(reader, &file->bytes);
    get_digest(reader, &file->digest);
  }
  wire->sources.files = wire->files;
  wire->sources.count = count;
  wire->request.sources = &wire->sources;
}

/* The strings point into the payload, which has to stay; only the arrays of them are allocated. */
const char *wire_request_read(struct wire_request *wire, const struct mem *mem, const void *payload, size_t bytes) {
  struct reader reader = {payload, bytes, NULL};
  *wire = (struct wire_request){0};
  const uint32_t work = get_u32(&reader);
  if (!reader.fault && work > WIRE_CREATE_PCH) reader.fault = "it asks for what no worker does";
  wire->work = (enum wire_work)work;
  wire->memory_bytes = get_u64(&reader);
  wire->identity = get_string(&reader);
  wire->request.family = get_string(&reader);
  wire->request.label = get_string(&reader);
  const char *target = get_string(&reader);
  if (!reader.fault && target_parse(&wire->request.target, target, NULL) != KJIT_OK)
    reader.fault = "its target is no architecture";
  wire->request.entry = get_string(&reader);
  wire->request.prologue = get_string(&reader);
  wire->request.main_path = get_string(&reader);
  wire->request.flags = get_u32(&reader);
  if (!reader.fault && wire->request.flags & ~JIT_REQUEST_OUTPUT_FLAGS) reader.fault = "it has an unknown flag";
  wire->request.names = wire->names = read_strings(&reader, mem, &wire->request.name_count);
  wire->request.options = wire->options = read_strings(&reader, mem, &wire->request.option_count);
  read_files(wire, &reader, mem);
  read_parts(wire, &reader, mem);
  if (!reader.fault && !wire->sources.count && !wire->request.part_count)
    reader.fault = "it has neither a source nor a part";
  return end_of(&reader);
}

void wire_request_finish(struct wire_request *wire, const struct mem *mem) {
  mem_free(mem, wire->parts);
  mem_free(mem, wire->files);
  mem_free(mem, wire->options);
  mem_free(mem, wire->names);
  *wire = (struct wire_request){0};
}

/* ---- Answers ---- */

/* An answer has the whole of the error and the whole of the result, and one of both is empty. The log comes with
 * either, because a compile that succeeds has warnings too. */
void wire_answer_put(struct text *out, kjit_status status, const struct compile_result *result,
                     const kjit_error *error) {
  put_u32(out, (uint32_t)status);
  put_u32(out, (uint32_t)error->cause_domain);
  put_u64(out, (uint64_t)error->cause);
  put_string(out, error->message);
  put_u32(out, result->registers);
  put_u32(out, result->spill_bytes);
  put_u32(out, result->local_bytes);
  put_u32(out, result->shared_bytes);
  put_u32(out, result->max_threads);
  put_u64(out, result->compile_ns);
  put_bytes(out, result->log ? result->log : "", result->log ? strlen(result->log) : 0);
  put_string(out, result->symbols ? result->symbols : "");
  put_bytes(out, result->cubin ? result->cubin : "", result->cubin_bytes);
}

static void read_error(struct reader *reader, kjit_error *error) {
  *error = (kjit_error){.cause_domain = (int32_t)get_u32(reader)};
  error->cause = (int64_t)get_u64(reader);
  const char *message = get_string(reader);
  if (strlen(message) >= sizeof error->message)
    reader->fault = "its message is too long";
  else
    strcpy(error->message, message);
}

/* A list that is empty is one that is not known. */
static void read_symbols(struct reader *reader, struct compile_result *result, const struct mem *mem) {
  const char *symbols = get_string(reader);
  const size_t bytes = strlen(symbols);
  if (!reader->fault && (bytes > SYMBOLS_MAX_BYTES || !symbols_are_sound(symbols, bytes)))
    reader->fault = "its list of kernels is malformed";
  if (reader->fault || !bytes) return;
  result->symbols = mem_strdup(mem, symbols);
  if (!result->symbols) reader->fault = "there is no memory for it";
}

/* The code is copied, because it outlives the message by the life of the artifact. */
static void read_code(struct reader *reader, struct compile_result *result, const struct mem *mem) {
  size_t bytes;
  const void *cubin = get_bytes(reader, &bytes);
  if (reader->fault || !bytes) return;
  result->cubin = mem_duplicate(mem, cubin, bytes);
  result->cubin_bytes = result->cubin ? bytes : 0;
  if (!result->cubin) reader->fault = "there is no memory for it";
}

const char *wire_answer_read(kjit_status *status, struct compile_result *result, kjit_error *error,
                             const struct mem *mem, const void *payload, size_t bytes) {
  struct reader reader = {payload, bytes, NULL};
  *result = (struct compile_result){0};
  const uint32_t given = get_u32(&reader);
  if (!reader.fault && given > KJIT_ERR_INTERNAL) reader.fault = "its status is unknown";
  *status = (kjit_status)given;
  read_error(&reader, error);
  error->status = (int32_t)given;
  result->registers = get_u32(&reader);
  result->spill_bytes = get_u32(&reader);
  result->local_bytes = get_u32(&reader);
  result->shared_bytes = get_u32(&reader);
  result->max_threads = get_u32(&reader);
  result->compile_ns = get_u64(&reader);
  const char *log = get_string(&reader);
  if (!reader.fault && !(result->log = mem_strdup(mem, log))) reader.fault = "there is no memory for it";
  read_symbols(&reader, result, mem);
  read_code(&reader, result, mem);
  if (!reader.fault && given == KJIT_OK && !result->cubin) reader.fault = "it has neither a kernel nor an error";
  return end_of(&reader);
}

/* ---- Deaths ---- */

void wire_death_put(struct text *out, const struct wire_death *death) {
  put_u32(out, death->how);
  put_u64(out, death->peak_bytes);
  put_string(out, death->said);
}

const char *wire_death_read(struct wire_death *death, const void *payload, size_t bytes) {
  struct reader reader = {payload, bytes, NULL};
  death->how = get_u32(&reader);
  death->peak_bytes = get_u64(&reader);
  death->said = get_string(&reader);
  return end_of(&reader);
}
