/* BLAKE2b-256 by libsodium, and digests as text.
 *
 * sodium_init() is called by the first thread that needs a digest. Without it the hash would still be right,
 * because it only selects the implementation for this CPU. The functions keep no other state, so any number of
 * threads may call them; a struct digest_state belongs to one thread at a time.
 *
 * Hex is written in lower case and read strictly, so that each digest has exactly one spelling and can be a file's
 * name. */
#include "base/digest.h"

#include <sodium.h>
#include <stdatomic.h>
#include <string.h>

_Static_assert(DIGEST_BYTES == crypto_generichash_BYTES, "BLAKE2b-256 is libsodium's default width");

/* Threads that come at the same time all call sodium_init(), which has a lock of its own and does nothing when it is
 * called again. A failure is ignored, because hashing then works with the portable code, at half the speed. */
static void start_once(void) {
  static _Atomic(bool) started;
  if (atomic_load_explicit(&started, memory_order_acquire)) return;
  (void)!sodium_init();
  atomic_store_explicit(&started, true, memory_order_release);
}

void digest_of(struct digest *out, const void *data, size_t bytes) {
  start_once();
  (void)crypto_generichash(out->bytes, sizeof out->bytes, data, bytes, NULL, 0);
}

_Static_assert(sizeof(struct digest_state) >= sizeof(crypto_generichash_state), "a state holds libsodium's");

static crypto_generichash_state *state_of(struct digest_state *state) {
  return (crypto_generichash_state *)(void *)state->opaque;
}

void digest_begin(struct digest_state *state) {
  start_once();
  (void)crypto_generichash_init(state_of(state), NULL, 0, DIGEST_BYTES);
}

void digest_add(struct digest_state *state, const void *data, size_t bytes) {
  (void)crypto_generichash_update(state_of(state), data, bytes);
}

void digest_end(struct digest_state *state, struct digest *out) {
  (void)crypto_generichash_final(state_of(state), out->bytes, sizeof out->bytes);
}

void digest_to_hex(const struct digest *digest, char hex[DIGEST_HEX_BYTES]) {
  sodium_bin2hex(hex, DIGEST_HEX_BYTES, digest->bytes, sizeof digest->bytes);
}

static int nibble(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

bool digest_from_hex(struct digest *out, const char *hex, size_t hex_bytes) {
  if (hex_bytes != DIGEST_HEX_BYTES - 1) return false;
  struct digest parsed;
  for (size_t i = 0; i < sizeof parsed.bytes; i++) {
    const int high = nibble(hex[2 * i]), low = nibble(hex[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    parsed.bytes[i] = (uint8_t)(high << 4 | low);
  }
  *out = parsed;
  return true;
}

bool digest_equal(const struct digest *a, const struct digest *b) {
  return !memcmp(a, b, sizeof *a);
}
