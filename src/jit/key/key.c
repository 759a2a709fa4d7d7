/* Writing a request's key, and its digests.
 *
 * The text is put together in the order of the grammar: head, entry format, architecture, kernel name, kjit's
 * standing options, the request's options, prologue, each source by name and digest, and last the compiler. Because
 * the compiler is last, the request's part is a prefix, and both digests come from one pass.
 *
 * Texts of up to 4 KiB, as those of the built-in kernels, lie in the struct and need no allocation; longer ones are
 * written a second time into memory. key_identify() digests the same content in a faster form for tables in this
 * process.
 *
 * A struct key belongs to one thread. */
#include "jit/key/key.h"

#include <string.h>

#include "base/error.h"
#include "jit/key/key_reader.h"
#include "jit/request/compile_options.h"

/* Decimal digits, without the cost of printf() on the look-up path. */
static void put_number(struct text *text, size_t number) {
  char digits[20];
  size_t at = sizeof digits;
  do
    digits[--at] = (char)('0' + number % 10);
  while (number /= 10);
  text_append_bytes(text, digits + at, sizeof digits - at);
}

void key_put_field(struct text *text, const char *tag, const char *value, size_t bytes) {
  text_append(text, tag);
  text_append_bytes(text, " ", 1);
  put_number(text, bytes);
  text_append_bytes(text, ":", 1);
  text_append_bytes(text, value, bytes);
  text_append_bytes(text, "\n", 1);
}

static void put_string(struct text *text, const char *tag, const char *value) {
  key_put_field(text, tag, value, strlen(value));
}

static void put_options(struct text *text, const char *const *options, size_t count) {
  for (size_t i = 0; i < count; i++)
    put_string(text, KEY_TAG_OPTION, options[i]);
}

static void put_digest(struct text *text, const struct digest *digest) {
  char hex[DIGEST_HEX_BYTES];
  digest_to_hex(digest, hex);
  put_string(text, KEY_TAG_DIGEST, hex);
}

static void put_parts(struct text *text, const struct jit_request *request) {
  for (size_t i = 0; i < request->part_count; i++) {
    put_string(text, KEY_TAG_PART, jit_part_kind_name(request->parts[i].kind));
    put_digest(text, &request->parts[i].digest);
  }
  if (request->flags & KJIT_BUILD_OBJECT)
    put_string(text, KEY_TAG_OUTPUT, KEY_OUTPUT_OBJECT);
  else if (request->flags & KJIT_BUILD_KEEP_UNUSED)
    put_string(text, KEY_TAG_OUTPUT, KEY_OUTPUT_WHOLE);
}

static void put_sources(struct text *text, const struct source_set *sources) {
  for (size_t i = 0; i < sources->count; i++) {
    put_string(text, KEY_TAG_SOURCE, sources->files[i].name);
    put_digest(text, &sources->files[i].digest);
  }
}

#define TEXT_OF(number)  TEXT_OF_(number)
#define TEXT_OF_(number) #number
#define FORMAT_TEXT      TEXT_OF(KEY_FORMAT_VERSION)

static void put_request(struct text *text, const struct jit_request *request) {
  const char *const *standing = NULL;
  const size_t standing_count = compile_standing_options(&standing);
  text_append(text, KEY_HEAD);
  put_string(text, KEY_TAG_FORMAT, FORMAT_TEXT);
  put_string(text, KEY_TAG_TARGET, request->target.name);
  put_string(text, KEY_TAG_ENTRY, request->entry);
  for (size_t i = 0; i < request->name_count; i++)
    put_string(text, KEY_TAG_NAME, request->names[i]);
  put_options(text, standing, standing_count);
  put_options(text, request->options, request->option_count);
  put_string(text, KEY_TAG_PROLOGUE, request->prologue);
  put_sources(text, request->sources);
  put_parts(text, request);
}

/* Write the whole key. False when the text ran out of room or memory. */
static bool put_key(struct key *key, const struct jit_request *request, const char *compiler) {
  put_request(&key->text, request);
  key->request_bytes = key->text.bytes;
  if (compiler) put_string(&key->text, KEY_TAG_COMPILER, compiler);
  return !key->text.failed;
}

/* A text that failed does not say why. It was out of memory unless the request is near the limit. */
static kjit_status failed(const struct jit_request *request, kjit_error *error) {
  if (strlen(request->prologue) + request->sources->count * DIGEST_HEX_BYTES < KEY_MAX_BYTES / 4)
    return error_no_memory(error);
  return error_invalid(error, "request", "defines, options and names of headers together exceed 1 MiB");
}

/* The digests of the request's part and of the whole, reading the common beginning once. */
static void digest_both(struct key *key) {
  struct digest_state request, whole;
  digest_begin(&request);
  digest_add(&request, key->text.data, key->request_bytes);
  whole = request;
  digest_end(&request, &key->request);
  digest_add(&whole, key->text.data + key->request_bytes, key->text.bytes - key->request_bytes);
  digest_end(&whole, &key->digest);
}

kjit_status key_make(struct key *key, const struct mem *mem, const struct jit_request *request, const char *compiler,
                     kjit_error *error) {
  key->complete = compiler != NULL;
  text_init_fixed(&key->text, key->small, sizeof key->small);
  if (!put_key(key, request, compiler)) {
    text_init(&key->text, mem, KEY_MAX_BYTES);
    if (!put_key(key, request, compiler)) return failed(request, error);
  }
  digest_both(key);
  return KJIT_OK;
}

void key_finish(struct key *key) {
  if (key->text.data != key->small) text_finish(&key->text);
}

static void identify_string(struct digest_state *state, const char *value) {
  const uint64_t bytes = strlen(value);
  digest_add(state, &bytes, sizeof bytes);
  digest_add(state, value, bytes);
}

/* The standing options and the format are left out, because they are the same throughout a process. */
void key_identify(struct digest *identity, const struct jit_request *request, const char *compiler) {
  struct digest_state state;
  const uint64_t counts[5] = {request->option_count, compiler != NULL, request->name_count, request->part_count,
                              request->flags & JIT_REQUEST_OUTPUT_FLAGS};
  digest_begin(&state);
  digest_add(&state, counts, sizeof counts);
  digest_add(&state, request->sources->digest.bytes, DIGEST_BYTES);
  identify_string(&state, request->target.name);
  identify_string(&state, request->entry);
  for (size_t i = 0; i < request->option_count; i++)
    identify_string(&state, request->options[i]);
  for (size_t i = 0; i < request->name_count; i++)
    identify_string(&state, request->names[i]);
  for (size_t i = 0; i < request->part_count; i++) {
    identify_string(&state, jit_part_kind_name(request->parts[i].kind));
    digest_add(&state, request->parts[i].digest.bytes, DIGEST_BYTES);
  }
  identify_string(&state, request->prologue);
  if (compiler) identify_string(&state, compiler);
  digest_end(&state, identity);
}
