/* Any bytes as an object of a remote store: an entry with or without a signature.
 *
 * Who trusts a key takes nothing but what this key has signed for exactly the key that was asked for; who trusts none
 * takes what is sound. The same once more with the entry made right and signed, or nothing would ever get past that. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <stdlib.h>
#include <string.h>

#include "fuzz/require.h"
#include "jit/cache/entry_layout.h"
#include "jit/remote/remote_object.h"

static const struct trust_key seed = {{7, 7, 7, 7}}, other_seed = {{8}};

/* The digest that an object is asked for by: that of its own key's text, where it has one. */
static struct digest key_of(const uint8_t *data, size_t size) {
  struct digest key = {{0}};
  struct entry entry;
  const size_t announced = size >= ENTRY_MAGIC_BYTES ? remote_object_announced(data, size) : 0;
  if (announced && announced <= size && !entry_read(data, announced, &entry))
    digest_of(&key, entry.key_text.data, entry.key_text.bytes);
  return key;
}

static const char *check_with(const uint8_t *data, size_t size, const struct digest *key, const struct trust *trust) {
  struct entry entry;
  size_t entry_bytes = 0;
  const char *damage = remote_object_check(data, size, key, trust, &entry, &entry_bytes);
  if (damage) require(*damage != '\0' && !strchr(damage, '\n'));
  if (!damage) require(entry_bytes <= size && entry.cubin_bytes > 0);
  if (!damage) input_is_taken();
  if (!damage && trust->count) {
    /* Ed25519's signatures are deterministic: the one right signature is the one that the key's owner makes. */
    uint8_t signature[REMOTE_SIGNATURE_BYTES];
    require(size == entry_bytes + REMOTE_SIGNATURE_BYTES);
    remote_object_sign(data, entry_bytes, key, &seed, signature);
    require(!memcmp(signature, data + entry_bytes, sizeof signature));
  }
  return damage;
}

/* Derived once, because that takes longer than all else. */
static struct trust_key trusted;

static const struct trust *trust_one(void) {
  static struct trust trust = {.keys = &trusted};
  if (!trust.count) remote_object_public_key(&seed, &trusted);
  trust.count = 1;
  return &trust;
}

static void check(const uint8_t *data, size_t size) {
  const struct trust nobody = {0}, *const trust = trust_one();
  struct digest key = key_of(data, size);
  const char *const open = check_with(data, size, &key, &nobody);
  const char *const strict = check_with(data, size, &key, trust);
  if (!strict) require(!open);
  key.bytes[5] ^= 1; /* replayed under another key */
  require(check_with(data, size, &key, &nobody) && check_with(data, size, &key, trust));
}

static void make_right(uint8_t *image, size_t size) {
  for (int i = 0; i < 8; i++)
    image[ENTRY_AT_FILE_BYTES + i] = (uint8_t)((uint64_t)size >> (8 * i));
  const XXH128_hash_t sum = XXH3_128bits(image, size - ENTRY_CHECKSUM_BYTES);
  for (size_t i = 0; i < 8; i++) {
    image[size - 16 + i] = (uint8_t)(sum.low64 >> (8 * i));
    image[size - 8 + i] = (uint8_t)(sum.high64 >> (8 * i));
  }
}

/* The entry without what may be a signature, made right, and signed by the trusted key and by a stranger. */
static void check_signed(const uint8_t *data, size_t size) {
  const struct trust nobody = {0}, *const trust = trust_one();
  const size_t least = ENTRY_HEADER_BYTES + ENTRY_CHECKSUM_BYTES;
  if (size < least) return;
  if (size >= least + REMOTE_SIGNATURE_BYTES) size -= REMOTE_SIGNATURE_BYTES;
  uint8_t *object = malloc(size + REMOTE_SIGNATURE_BYTES);
  require(object != NULL);
  memcpy(object, data, size);
  make_right(object, size);
  const struct digest key = key_of(object, size);
  const char *const bare = check_with(object, size, &key, &nobody);
  if (bare && size % 8) goto done; /* signing takes long, and what is not sound is refused for that already */
  remote_object_sign(object, size, &key, &seed, object + size);
  require(!bare == !check_with(object, size + REMOTE_SIGNATURE_BYTES, &key, trust));
  if (!bare) {
    check(object, size + REMOTE_SIGNATURE_BYTES);
    remote_object_sign(object, size, &key, &other_seed, object + size);
    require(check_with(object, size + REMOTE_SIGNATURE_BYTES, &key, trust) != NULL);
  }

done:
  free(object);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!size) return 0;
  check(data, size);
  check_signed(data, size);
  return 0;
}
