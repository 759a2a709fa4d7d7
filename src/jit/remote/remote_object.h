/* An object of a remote store: entry [ signature ].
 *
 *   signature = "KJESIGN1" | public key (32 bytes) | Ed25519 signature (64 bytes)
 *
 * Signed is the text "kjit-entry-signature 1\n" | BLAKE2b-256 of the key's text | BLAKE2b-256 of the entry. So a
 * signature holds for one cubin under one key. */
#ifndef KJIT_JIT_REMOTE_REMOTE_OBJECT_H
#define KJIT_JIT_REMOTE_REMOTE_OBJECT_H

#include "jit/bundle/bundle_trust.h"
#include "jit/cache/entry.h"

#define REMOTE_SIGNATURE_BYTES  104
#define REMOTE_OBJECT_MAX_BYTES ((size_t)ENTRY_MAX_BYTES + REMOTE_SIGNATURE_BYTES)

/* Check an object that was asked for by `key`, the digest of a whole key. With trusted keys one of them must have
 * signed it. NULL when it is sound, and `entry` points into `data`; else what is wrong, in static storage. */
const char *remote_object_check(const void *data, size_t bytes, const struct digest *key, const struct trust *trust,
                                struct entry *entry, size_t *entry_bytes);

/* Size of the whole object by its first bytes, without a signature: 0 when it is too early to tell, SIZE_MAX when this
 * is no entry. */
size_t remote_object_announced(const void *data, size_t bytes);

/* Write the signature of an entry under a key. `seed` is the secret. */
void remote_object_sign(const void *image, size_t bytes, const struct digest *key, const struct trust_key *seed,
                        uint8_t signature[REMOTE_SIGNATURE_BYTES]);

/* The public key of a secret. */
void remote_object_public_key(const struct trust_key *seed, struct trust_key *key);

#endif
