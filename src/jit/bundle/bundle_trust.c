/* Ed25519 signatures of bundles, by libsodium.
 *
 * The signed text is a fixed prefix and the bundle's head. The head holds the digest of the table, and the table the
 * digest of every dictionary and payload, so the signature covers the whole file. The prefix keeps a signature from
 * being valid for any other kind of document. Secrets are wiped from the stack after use. No state but libsodium's
 * own, which is thread-safe. */
#include "jit/bundle/bundle_trust.h"

#include <sodium.h>
#include <stdbool.h>
#include <string.h>

#include "base/error.h"

_Static_assert(TRUST_KEY_BYTES == crypto_sign_PUBLICKEYBYTES, "Ed25519's public key");
_Static_assert(TRUST_KEY_BYTES == crypto_sign_SEEDBYTES, "Ed25519's seed");
_Static_assert(SIGNATURE_AT_SIGNATURE + crypto_sign_BYTES == BUNDLE_SIGNATURE_BYTES, "Ed25519's signature");

#define SIGNED_BYTES (sizeof BUNDLE_SIGNED_PREFIX - 1 + BUNDLE_HEAD_BYTES)

static void signed_text(uint8_t text[SIGNED_BYTES], const void *head) {
  memcpy(text, BUNDLE_SIGNED_PREFIX, sizeof BUNDLE_SIGNED_PREFIX - 1);
  memcpy(text + sizeof BUNDLE_SIGNED_PREFIX - 1, head, BUNDLE_HEAD_BYTES);
}

kjit_status trust_init(struct trust *trust, const struct mem *mem, const char *const *hex, size_t count,
                       kjit_error *error) {
  struct digest key;
  *trust = (struct trust){0};
  if (!count) return KJIT_OK;
  if (!hex || count > TRUST_MAX_KEYS)
    return error_set(error, KJIT_ERR_INVALID_ARG, "trusted_keys: %s; at most %d",
                     hex ? "more than there can be" : "missing, but their count is set", TRUST_MAX_KEYS);
  trust->keys = mem_alloc_array(mem, count, sizeof *trust->keys);
  if (!trust->keys) return error_no_memory(error);
  for (trust->count = 0; trust->count < count; trust->count++) {
    const char *const text = hex[trust->count];
    if (!text || !digest_from_hex(&key, text, strnlen(text, DIGEST_HEX_BYTES)))
      return error_set(error, KJIT_ERR_INVALID_ARG, "trusted_keys[%zu]: a public key is 64 lower-case hex digits",
                       trust->count);
    memcpy(trust->keys[trust->count].bytes, key.bytes, TRUST_KEY_BYTES);
  }
  return KJIT_OK;
}

void trust_finish(struct trust *trust, const struct mem *mem) {
  mem_free(mem, trust->keys);
  *trust = (struct trust){0};
}

bool trust_has(const struct trust *trust, const uint8_t *key) {
  for (size_t i = 0; i < trust->count; i++)
    if (!memcmp(trust->keys[i].bytes, key, TRUST_KEY_BYTES)) return true;
  return false;
}

static bool signature_is_right(const void *head, const uint8_t *signature) {
  uint8_t text[SIGNED_BYTES];
  signed_text(text, head);
  return !memcmp(signature, BUNDLE_SIGNATURE_MAGIC, BUNDLE_SIGNATURE_MAGIC_BYTES) &&
         !crypto_sign_verify_detached(signature + SIGNATURE_AT_SIGNATURE, text, sizeof text,
                                      signature + SIGNATURE_AT_KEY);
}

kjit_status trust_check(const struct trust *trust, const void *head, const void *signature, const char *name,
                        kjit_error *error) {
  const uint8_t *const at = signature;
  if (!at && !trust->count) return KJIT_OK;
  if (!at)
    return error_set(error, KJIT_ERR_UNTRUSTED,
                     "%s: not signed, and this runtime takes what is signed by one of its %zu trusted keys only", name,
                     trust->count);
  if (!signature_is_right(head, at))
    return error_set(error, KJIT_ERR_UNTRUSTED, "%s: its signature is not that of its content", name);
  if (!trust->count || trust_has(trust, at + SIGNATURE_AT_KEY)) return KJIT_OK;
  char hex[2 * TRUST_KEY_BYTES + 1];
  sodium_bin2hex(hex, sizeof hex, at + SIGNATURE_AT_KEY, TRUST_KEY_BYTES);
  return error_set(error, KJIT_ERR_UNTRUSTED, "%s: signed by %s, which is none of the %zu trusted keys", name, hex,
                   trust->count);
}

void trust_sign(const void *head, const struct trust_key *seed, uint8_t signature[BUNDLE_SIGNATURE_BYTES]) {
  uint8_t text[SIGNED_BYTES], secret[crypto_sign_SECRETKEYBYTES];
  signed_text(text, head);
  memcpy(signature, BUNDLE_SIGNATURE_MAGIC, BUNDLE_SIGNATURE_MAGIC_BYTES);
  (void)crypto_sign_seed_keypair(signature + SIGNATURE_AT_KEY, secret, seed->bytes);
  (void)crypto_sign_detached(signature + SIGNATURE_AT_SIGNATURE, NULL, text, sizeof text, secret);
  sodium_memzero(secret, sizeof secret);
}

void trust_generate(struct trust_key *seed, struct trust_key *key) {
  uint8_t secret[crypto_sign_SECRETKEYBYTES];
  (void)!sodium_init();
  randombytes_buf(seed->bytes, sizeof seed->bytes);
  (void)crypto_sign_seed_keypair(key->bytes, secret, seed->bytes);
  sodium_memzero(secret, sizeof secret);
}
