/* Checking and signing the objects of remote stores.
 *
 * 1. The size in the entry's header says where the entry ends and a signature may begin.
 * 2. The signature is checked, if there is one or if one is asked for, before anything else of the entry is read.
 * 3. The entry is checked as one of a folder is, and the digest of its key's text is compared with the one asked for.
 *
 * No state but libsodium's own, which is thread-safe. */
#include "jit/remote/remote_object.h"

#include <sodium.h>
#include <string.h>

#include "base/bytes.h"
#include "jit/cache/entry_layout.h"

#define SIGNATURE_MAGIC       "KJESIGN1"
#define SIGNATURE_MAGIC_BYTES 8
#define SIGNED_PREFIX         "kjit-entry-signature 1\n"
#define SIGNED_PREFIX_BYTES   (sizeof SIGNED_PREFIX - 1)
#define SIGNED_BYTES          (SIGNED_PREFIX_BYTES + 2 * DIGEST_BYTES)

enum signature_offset { AT_KEY = SIGNATURE_MAGIC_BYTES, AT_SIGNATURE = AT_KEY + TRUST_KEY_BYTES };
_Static_assert(AT_SIGNATURE + crypto_sign_BYTES == REMOTE_SIGNATURE_BYTES, "Ed25519's signature");

static void signed_text(uint8_t text[SIGNED_BYTES], const struct digest *key, const void *image, size_t bytes) {
  struct digest content;
  digest_of(&content, image, bytes);
  memcpy(text, SIGNED_PREFIX, SIGNED_PREFIX_BYTES);
  memcpy(text + SIGNED_PREFIX_BYTES, key->bytes, DIGEST_BYTES);
  memcpy(text + SIGNED_PREFIX_BYTES + DIGEST_BYTES, content.bytes, DIGEST_BYTES);
}

size_t remote_object_announced(const void *data, size_t bytes) {
  const uint8_t *const at = data;
  const size_t known = bytes < ENTRY_MAGIC_BYTES ? bytes : ENTRY_MAGIC_BYTES;
  if (memcmp(at, ENTRY_MAGIC, known) != 0) return SIZE_MAX;
  if (bytes < ENTRY_AT_FILE_BYTES + sizeof(uint64_t)) return 0;
  const uint64_t announced = bytes_get_u64(at + ENTRY_AT_FILE_BYTES);
  const bool possible = announced >= ENTRY_HEADER_BYTES + ENTRY_CHECKSUM_BYTES && announced <= ENTRY_MAX_BYTES;
  return possible ? (size_t)announced : SIZE_MAX;
}

static const char *check_signature(const uint8_t *signature, const void *image, size_t bytes, const struct digest *key,
                                   const struct trust *trust) {
  uint8_t text[SIGNED_BYTES];
  if (memcmp(signature, SIGNATURE_MAGIC, SIGNATURE_MAGIC_BYTES) != 0) return "what follows the entry is no signature";
  /* Whose key it is comes first, because it costs nothing. */
  if (trust->count && !trust_has(trust, signature + AT_KEY)) return "signed by a key that is not trusted";
  signed_text(text, key, image, bytes);
  if (!crypto_sign_verify_detached(signature + AT_SIGNATURE, text, sizeof text, signature + AT_KEY)) return NULL;
  return "its signature is not that of this entry under this key";
}

const char *remote_object_check(const void *data, size_t bytes, const struct digest *key, const struct trust *trust,
                                struct entry *entry, size_t *entry_bytes) {
  const size_t announced = remote_object_announced(data, bytes);
  struct digest found;
  if (!announced || announced == SIZE_MAX) return "no entry";
  if (bytes < announced) return "shorter than its header says";
  if (bytes != announced && bytes != announced + REMOTE_SIGNATURE_BYTES) return "longer than its header says";
  if (bytes == announced && trust->count) return "not signed";
  const char *damage = NULL;
  if (bytes != announced) damage = check_signature((const uint8_t *)data + announced, data, announced, key, trust);
  if (!damage) damage = entry_read(data, announced, entry);
  if (damage) return damage;
  digest_of(&found, entry->key_text.data, entry->key_text.bytes);
  if (!digest_equal(&found, key)) return "the entry of another key";
  if (!entry->cubin_bytes) return "a failed compile";
  *entry_bytes = announced;
  return NULL;
}

void remote_object_sign(const void *image, size_t bytes, const struct digest *key, const struct trust_key *seed,
                        uint8_t signature[REMOTE_SIGNATURE_BYTES]) {
  uint8_t text[SIGNED_BYTES], secret[crypto_sign_SECRETKEYBYTES];
  signed_text(text, key, image, bytes);
  memcpy(signature, SIGNATURE_MAGIC, SIGNATURE_MAGIC_BYTES);
  (void)crypto_sign_seed_keypair(signature + AT_KEY, secret, seed->bytes);
  (void)crypto_sign_detached(signature + AT_SIGNATURE, NULL, text, sizeof text, secret);
  sodium_memzero(secret, sizeof secret);
}

void remote_object_public_key(const struct trust_key *seed, struct trust_key *key) {
  uint8_t secret[crypto_sign_SECRETKEYBYTES];
  (void)crypto_sign_seed_keypair(key->bytes, secret, seed->bytes);
  sodium_memzero(secret, sizeof secret);
}
