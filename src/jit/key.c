#include "jit/key.h"

#include <string.h>

#include "base/error.h"
#include "jit/compile.h"
#include "jit/entry.h"
#include "jit/key_reader.h"

static void put_field(struct text *text, const char *tag, const char *value, size_t bytes) {
  text_appendf(text, "%s %zu:", tag, bytes);
  text_append_bytes(text, value, bytes);
  text_append_bytes(text, "\n", 1);
}

static void put_string(struct text *text, const char *tag, const char *value) {
  put_field(text, tag, value, strlen(value));
}

static void put_options(struct text *text, const char *const *options, size_t count) {
  for (size_t i = 0; i < count; i++)
    put_string(text, KEY_TAG_OPTION, options[i]);
}

static void put_sources(struct text *text, const struct source_set *sources) {
  for (size_t i = 0; i < sources->count; i++) {
    char hex[DIGEST_HEX_BYTES];
    digest_to_hex(&sources->files[i].digest, hex);
    put_string(text, KEY_TAG_SOURCE, sources->files[i].name);
    put_string(text, KEY_TAG_DIGEST, hex);
  }
}

static void put_request(struct text *text, const struct jit_request *request) {
  const char *const *standing = NULL;
  const size_t standing_count = compile_standing_options(&standing);
  text_append(text, KEY_HEAD);
  text_appendf(text, KEY_TAG_FORMAT " %d:%d\n", 1, ENTRY_FORMAT_VERSION);
  put_string(text, KEY_TAG_TARGET, request->target.name);
  put_string(text, KEY_TAG_ENTRY, request->entry);
  put_options(text, standing, standing_count);
  put_options(text, request->options, request->option_count);
  put_string(text, KEY_TAG_PROLOGUE, request->prologue);
  put_sources(text, request->sources);
}

kjit_status key_make(struct key *key, const struct mem *mem, const struct jit_request *request, const char *compiler,
                     kjit_error *error) {
  text_init(&key->text, mem, ENTRY_KEY_MAX_BYTES);
  put_request(&key->text, request);
  key->request_bytes = key->text.bytes;
  key->complete = compiler != NULL;
  if (compiler) put_string(&key->text, KEY_TAG_COMPILER, compiler);
  if (key->text.failed) {
    /* Text fails alike for both reasons; only a request that is near the limit can have passed it. */
    if (strlen(request->prologue) + request->sources->count * DIGEST_HEX_BYTES < ENTRY_KEY_MAX_BYTES / 4)
      return error_no_memory(error);
    return error_invalid(error, "request", "defines, options and names of headers together exceed 1 MiB");
  }
  digest_of(&key->request, key->text.data, key->request_bytes);
  key->digest = key->request;
  if (compiler) digest_of(&key->digest, key->text.data, key->text.bytes);
  return KJIT_OK;
}

void key_finish(struct key *key) {
  text_finish(&key->text);
}
