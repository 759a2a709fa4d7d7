/* What the files of `kjit bundle` share: options, actions, key files, C source, compression. */
#ifndef KJIT_TOOLS_BUNDLE_H
#define KJIT_TOOLS_BUNDLE_H

#include <stdbool.h>

#include "asked.h"
#include "output_file.h"

#define BUNDLE_KEY_HEX_BYTES 65 /* with the NUL */

struct bundle_options {
  struct option_list words; /* the action's name, then its argument */
  struct asked asked;
  struct option_list families, keys, programs;
  const char *out, *symbol;
  uint64_t jobs;
  bool c_source, json;
};

/* The actions. words.items[1] is the bundle's path; for keygen it is the name of the keys. Each returns an exit code.
 */
int bundle_create(const struct bundle_options *options);
int bundle_inspect(const struct bundle_options *options);
int bundle_verify(const struct bundle_options *options);
int bundle_sign(const struct bundle_options *options);
int bundle_keygen(const struct bundle_options *options);

/* Every kernel of the sealed programs that were named. */
kjit_status bundle_add_programs(const struct bundle_options *options, kjit_bundle_writer *writer, kjit_error *error);

/* ---- Keys: a file with one line, "kjit-secret-key 1 HEX" or "kjit-public-key 1 HEX" ---- */

enum bundle_key_kind { BUNDLE_KEY_SECRET, BUNDLE_KEY_PUBLIC };

/* Read a key from its file; a public key may be given as its hex digits. */
kjit_status bundle_key_read(const char *text, enum bundle_key_kind kind, char hex[BUNDLE_KEY_HEX_BYTES],
                            kjit_error *error);

/* Read all public keys of a command line, for kjit_bundle_open(). free() releases keys and array at once. NULL after a
 * failure, with the error set. */
const char **bundle_keys_read(const struct option_list *keys, kjit_error *error);

/* ---- C source ---- */

/* C source that defines `const unsigned char SYMBOL[]` and `const size_t SYMBOL_bytes`; `origin` says who wrote it, and
 * what for. The caller frees it; NULL when out of memory. */
char *bundle_c_source(const char *origin, const char *symbol, const struct output_piece *pieces, size_t count);
bool bundle_symbol_is_sound(const char *symbol);

/* ---- Packing ---- */

/* A zstd compressor at the level that gives the smallest bundles. `user` is what bundle_compressor_create() returned;
 * bundle_compress() has the form that kjit_bundle_writer_create() asks for. */
void *bundle_compressor_create(void);
void bundle_compressor_free(void *user);
size_t bundle_compress(void *user, const void *dictionary, size_t dictionary_bytes, const void *data, size_t bytes,
                       void *out, size_t capacity);

#endif
