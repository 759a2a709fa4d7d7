/* Names of entries in a cache folder: entries/<2 hex>/<request, 32 hex>-<key, 64 hex>.
 *
 * The request comes first, so that all compilers' answers to one request share a folder and a prefix: where no NVRTC is
 * installed, finding them is one listing of one small folder. The key is whole, so that it is found by its digits. */
#ifndef KJIT_JIT_CACHE_ENTRY_NAME_H
#define KJIT_JIT_CACHE_ENTRY_NAME_H

#include <stdbool.h>

#include "base/digest.h"

#define ENTRY_SHARDS             256
#define ENTRY_NAME_REQUEST_BYTES 32 /* 128 bits of the request's digest: the key text decides, this only finds */
#define ENTRY_FOLDER             "entries"

struct entry_name {
  char folder[sizeof ENTRY_FOLDER + 3];                                                 /* "entries/ab" */
  char file[ENTRY_NAME_REQUEST_BYTES + 1 + DIGEST_HEX_BYTES];                           /* "<request>-<key>" */
  char path[sizeof ENTRY_FOLDER + 3 + ENTRY_NAME_REQUEST_BYTES + 1 + DIGEST_HEX_BYTES]; /* both */
};

void entry_name_make(struct entry_name *name, const struct digest *request, const struct digest *key);

/* By the key's text, which must be sound. */
void entry_name_of_key(struct entry_name *name, const char *key_text, size_t bytes);

/* From a file's name; false when it is no entry's. */
bool entry_name_parse(struct entry_name *name, const char *file);

/* The 64 hex digits of the key. */
const char *entry_name_key(const struct entry_name *name);

/* "entries/ab" for a shard's number. */
void entry_name_shard(char folder[sizeof ENTRY_FOLDER + 3], unsigned shard);
unsigned entry_name_shard_number(const struct entry_name *name);

#endif
