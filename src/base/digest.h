/* BLAKE2b-256 (libsodium's crypto_generichash): the digests that name keys, entries and sources. */
#ifndef KJIT_BASE_DIGEST_H
#define KJIT_BASE_DIGEST_H

#include <stdbool.h>

#include <kjit/common.h>

#define DIGEST_BYTES     32
#define DIGEST_HEX_BYTES 65 /* with the NUL */

struct digest {
  uint8_t bytes[DIGEST_BYTES];
};

void digest_of(struct digest *out, const void *data, size_t bytes);

/* The digest of several pieces as if they were one: begin, add each piece, end. A copy of the struct is a state of its
 * own, so that two texts with a common beginning need to be read once. */
struct digest_state {
  _Alignas(64) unsigned char opaque[384];
};
void digest_begin(struct digest_state *state);
void digest_add(struct digest_state *state, const void *data, size_t bytes);
void digest_end(struct digest_state *state, struct digest *out);

/* 64 lower-case hex digits and a NUL. */
void digest_to_hex(const struct digest *digest, char hex[DIGEST_HEX_BYTES]);

/* Strict: exactly 64 digits, lower case, so that a digest has one spelling. *out is left alone on failure. */
bool digest_from_hex(struct digest *out, const char *hex, size_t hex_bytes);

bool digest_equal(const struct digest *a, const struct digest *b);

#endif
