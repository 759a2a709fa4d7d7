/* Ed25519 for bundles: whose bundles a runtime takes, signing and checking signatures. */
#ifndef KJIT_JIT_BUNDLE_BUNDLE_TRUST_H
#define KJIT_JIT_BUNDLE_BUNDLE_TRUST_H

#include <stdbool.h>

#include "base/mem.h"
#include "jit/bundle/bundle_format.h"

#define TRUST_KEY_BYTES 32
/* Sanity bound: a larger count is an uninitialised struct. */
#define TRUST_MAX_KEYS 1024

struct trust_key {
  uint8_t bytes[TRUST_KEY_BYTES];
};

/* The public keys of which one must have signed a bundle. Without any, every sound bundle is accepted. */
struct trust {
  struct trust_key *keys; /* mem_free */
  size_t count;
};

/* Read keys of 64 lower-case hex digits each. KJIT_ERR_INVALID_ARG names the one that is malformed; KJIT_ERR_NO_MEMORY.
 */
kjit_status trust_init(struct trust *trust, const struct mem *mem, const char *const *hex, size_t count,
                       kjit_error *error);
void trust_finish(struct trust *trust, const struct mem *mem); /* accepts a zeroed one */

/* Is this public key, of TRUST_KEY_BYTES bytes, one of them? */
bool trust_has(const struct trust *trust, const uint8_t *key);

/* May a bundle with this head and signature be used? `signature` is NULL for an unsigned one. KJIT_ERR_UNTRUSTED says
 * why not; `name` is for the message. A signature that is wrong is refused even where no key is asked for. */
kjit_status trust_check(const struct trust *trust, const void *head, const void *signature, const char *name,
                        kjit_error *error);

/* The signature of a bundle with this head. `seed` is the secret. */
void trust_sign(const void *head, const struct trust_key *seed, uint8_t signature[BUNDLE_SIGNATURE_BYTES]);

/* Make a new secret `seed` and its public `key`. */
void trust_generate(struct trust_key *seed, struct trust_key *key);

#endif
