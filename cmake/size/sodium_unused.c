/* sodium_init() chooses the code for this CPU of everything that libsodium has, and so brings 80 KB of it along that
 * kjit never calls: Argon2, Poly1305, Salsa20, ChaCha20 and Curve25519's Diffie-Hellman, each in up to four versions.
 * kjit hashes (BLAKE2b) and checks signatures (Ed25519), which need none of them. The linker takes the functions of
 * this file in their place, because an object file comes before an archive. They are never called. */
#define CHOICES(X)                                                                                                     \
  X(_crypto_onetimeauth_poly1305_pick_best_implementation)                                                             \
  X(_crypto_pwhash_argon2_pick_best_implementation)                                                                    \
  X(_crypto_scalarmult_curve25519_pick_best_implementation)                                                            \
  X(_crypto_stream_chacha20_pick_best_implementation)                                                                  \
  X(_crypto_stream_salsa20_pick_best_implementation)

#define CHOOSE_NOTHING(name)                                                                                           \
  int name(void);                                                                                                      \
  int name(void) {                                                                                                     \
    return 0;                                                                                                          \
  }
CHOICES(CHOOSE_NOTHING)

/* libsodium's generator of random bytes from a seed calls this. kjit never uses that generator, so a call is a fault
 * and ends the program. */
void crypto_stream_chacha20_ietf(void);
void crypto_stream_chacha20_ietf(void) {
  __builtin_trap();
}
