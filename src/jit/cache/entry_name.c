/* Names of entry files: the digest of the request and the digest of the whole key, in hex, in a folder named by the
 * first two digits. Since the request comes first, all kernels for one request, made by different compilers, are
 * neighbours. Pure functions; any thread. */
#include "jit/cache/entry_name.h"

#include <stdio.h>
#include <string.h>

#include "jit/key/key_reader.h"

static void fill(struct entry_name *name, const char *request_hex, const char *key_hex) {
  snprintf(name->folder, sizeof name->folder, ENTRY_FOLDER "/%.2s", request_hex);
  snprintf(name->file, sizeof name->file, "%.*s-%.64s", ENTRY_NAME_REQUEST_BYTES, request_hex, key_hex);
  snprintf(name->path, sizeof name->path, ENTRY_FOLDER "/%.2s/%.*s-%.64s", request_hex, ENTRY_NAME_REQUEST_BYTES,
           request_hex, key_hex);
}

void entry_name_make(struct entry_name *name, const struct digest *request, const struct digest *key) {
  char request_hex[DIGEST_HEX_BYTES], key_hex[DIGEST_HEX_BYTES];
  digest_to_hex(request, request_hex);
  digest_to_hex(key, key_hex);
  fill(name, request_hex, key_hex);
}

void entry_name_of_key(struct entry_name *name, const char *key_text, size_t bytes) {
  struct digest request, key;
  digest_of(&request, key_text, key_request_part(key_text, bytes));
  digest_of(&key, key_text, bytes);
  entry_name_make(name, &request, &key);
}

bool entry_name_parse(struct entry_name *name, const char *file) {
  if (strlen(file) != sizeof name->file - 1 || file[ENTRY_NAME_REQUEST_BYTES] != '-') return false;
  for (const char *at = file; *at; at++) {
    const bool hex = (*at >= '0' && *at <= '9') || (*at >= 'a' && *at <= 'f');
    if (!hex && at != file + ENTRY_NAME_REQUEST_BYTES) return false;
  }
  fill(name, file, file + ENTRY_NAME_REQUEST_BYTES + 1);
  return true;
}

const char *entry_name_key(const struct entry_name *name) {
  return name->file + ENTRY_NAME_REQUEST_BYTES + 1;
}

void entry_name_shard(char folder[sizeof ENTRY_FOLDER + 3], unsigned shard) {
  snprintf(folder, sizeof ENTRY_FOLDER + 3, ENTRY_FOLDER "/%02x", shard % ENTRY_SHARDS);
}

static unsigned nibble(char c) {
  return (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
}

unsigned entry_name_shard_number(const struct entry_name *name) {
  return nibble(name->file[0]) << 4 | nibble(name->file[1]);
}
