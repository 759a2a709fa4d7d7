/* BLAKE2b-256 (libsodium's crypto_generichash). */
#ifndef KJIT_BASE_DIGEST_H
#define KJIT_BASE_DIGEST_H

#include <kjit/common.h>

#define DIGEST_BYTES     32
#define DIGEST_HEX_BYTES 65 /* with the NUL */

struct digest {
  uint8_t bytes[DIGEST_BYTES];
};

void digest_of(struct digest *out, const void *data, size_t bytes);

/* The same of several pieces in a row. A copy of a state goes on from where the original was. */
struct digest_state {
  _Alignas(64) unsigned char opaque[384];
};
void digest_begin(struct digest_state *state);
void digest_add(struct digest_state *state, const void *data, size_t bytes);
void digest_end(struct digest_state *state, struct digest *out);

/* Lower case. */
void digest_to_hex(const struct digest *digest, char hex[DIGEST_HEX_BYTES]);

/* Strict: exactly 64 digits, lower case, so that a digest has one spelling. *out is left alone on failure. */
_Bool digest_from_hex(struct digest *out, const char *hex, size_t hex_bytes);

_Bool digest_equal(const struct digest *a, const struct digest *b);

#endif
