/* The messages between a library and its compile workers: written and read, without any input or output of its own.
 *
 * A payload is a row of numbers (little-endian, 4 or 8 bytes) and of byte strings (their size in 8 bytes, the bytes, a
 * NUL). The reader notes the first thing that is wrong and gives zeros and empty strings from then on, so that a
 * function that reads a message tests once, at its end. Everything here is a pure function of its arguments. */
#include "jit/compile/protocol.h"

#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"

/* "KJW" and the version of everything in this file. */
#define MAGIC 0x31574a4bu

/* As many as a request may have (include_closure.c) and far more options than anybody passes: bounds on what is
 * allocated before the strings themselves are seen. */
#define FILES_LIMIT   8192
#define OPTIONS_LIMIT 65536

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

void frame_put(struct text *out, enum frame_kind kind, const void *payload, size_t bytes) {
  put_u32(out, MAGIC);
  put_u32(out, (uint32_t)kind);
  put_u64(out, bytes);
  put_u64(out, hash_64(payload, bytes));
  if (bytes) text_append_bytes(out, payload, bytes);
}

_Bool frame_read_head(struct frame_head *head, const uint8_t *bytes) {
  const uint32_t kind = bytes_get_u32(bytes + 4);
  const uint64_t size = bytes_get_u64(bytes + 8);
  *head = (struct frame_head){(enum frame_kind)kind, (size_t)size, bytes_get_u64(bytes + 16)};
  return bytes_get_u32(bytes) == MAGIC && kind >= FRAME_BEGAN && kind <= FRAME_READY && size <= FRAME_MAX_BYTES;
}

_Bool frame_is_intact(const struct frame_head *head, const void *payload) {
  return hash_64(payload, head->bytes) == head->checksum;
}

/* ---- Reading a payload ---- */

struct reader {
  const uint8_t *at;
  size_t left;
  const char *fault; /* the first thing that is wrong, static text */
};

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
  put_u32(out, (uint32_t)request->option_count);
  for (size_t i = 0; i < request->option_count; i++)
    put_string(out, request->options[i]);
  put_u32(out, (uint32_t)sources->count);
  text_append_bytes(out, sources->digest.bytes, DIGEST_BYTES);
  for (size_t i = 0; i < sources->count; i++) {
    put_string(out, sources->files[i].name);
    put_string(out, sources->files[i].path ? sources->files[i].path : sources->files[i].name);
    put_bytes(out, sources->files[i].text, sources->files[i].bytes);
    text_append_bytes(out, sources->files[i].digest.bytes, DIGEST_BYTES);
  }
}

static void read_options(struct wire_request *wire, struct reader *reader, const struct mem *mem) {
  const uint32_t count = get_count(reader, OPTIONS_LIMIT, 9);
  wire->options = mem_alloc_array(mem, count, sizeof *wire->options);
  if (!wire->options) {
    reader->fault = "there is no memory for it";
    return;
  }
  for (uint32_t i = 0; i < count; i++)
    wire->options[i] = get_string(reader);
  wire->request.options = wire->options;
  wire->request.option_count = count;
}

static void read_files(struct wire_request *wire, struct reader *reader, const struct mem *mem) {
  const uint32_t count = get_count(reader, FILES_LIMIT, 27 + DIGEST_BYTES);
  get_digest(reader, &wire->sources.digest);
  if (!reader->fault && !count) reader->fault = "it has no source";
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
    reader.fault = "its target is none";
  wire->request.entry = get_string(&reader);
  wire->request.prologue = get_string(&reader);
  if (!reader.fault) read_options(wire, &reader, mem);
  if (!reader.fault) read_files(wire, &reader, mem);
  return end_of(&reader);
}

void wire_request_finish(struct wire_request *wire, const struct mem *mem) {
  mem_free(mem, wire->files);
  mem_free(mem, wire->options);
  *wire = (struct wire_request){0};
}

/* ---- Answers ---- */

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
  put_u64(out, (uint64_t)(result->compile_ms * 1e6));
  put_bytes(out, result->log ? result->log : "", result->log ? strlen(result->log) : 0);
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
  if (!reader.fault && given > KJIT_ERR_INTERNAL) reader.fault = "its status is none";
  *status = (kjit_status)given;
  read_error(&reader, error);
  error->status = (int32_t)given;
  result->registers = get_u32(&reader);
  result->spill_bytes = get_u32(&reader);
  result->local_bytes = get_u32(&reader);
  result->shared_bytes = get_u32(&reader);
  result->max_threads = get_u32(&reader);
  result->compile_ms = (double)get_u64(&reader) / 1e6;
  const char *log = get_string(&reader);
  if (!reader.fault && !(result->log = mem_strdup(mem, log))) reader.fault = "there is no memory for it";
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
