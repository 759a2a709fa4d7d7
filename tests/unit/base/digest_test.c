#include "base/digest.h"
#include "support/test.h"

/* From another implementation: b2sum -l 256. */
#define OF_NOTHING "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8"
#define OF_ABC     "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319"

static void assert_digest(const char *expected, const void *data, size_t bytes) {
  struct digest digest;
  char hex[DIGEST_HEX_BYTES];
  digest_of(&digest, data, bytes);
  digest_to_hex(&digest, hex);
  assert_string_equal(expected, hex);
}

static void test_digest__is_blake2b_256(void **state) {
  (void)state;
  assert_digest(OF_NOTHING, NULL, 0);
  assert_digest(OF_ABC, "abc", 3);
}

static void test_digest__hex_round_trip_is_equal(void **state) {
  (void)state;
  struct digest digest, parsed = {{0}};
  digest_of(&digest, "abc", 3);
  assert_true(digest_from_hex(&parsed, OF_ABC, 64));
  assert_true(digest_equal(&digest, &parsed));
  parsed.bytes[31] ^= 1;
  assert_false(digest_equal(&digest, &parsed));
}

static void test_digest__every_other_spelling_is_refused(void **state) {
  (void)state;
  struct digest before, digest;
  digest_of(&before, "x", 1);
  digest = before;
  char hex[] = OF_ABC;
  assert_false(digest_from_hex(&digest, hex, 63));
  assert_false(digest_from_hex(&digest, hex, 0));
  hex[0] = 'B';
  assert_false(digest_from_hex(&digest, hex, 64));
  hex[0] = 'g';
  assert_false(digest_from_hex(&digest, hex, 64));
  hex[0] = 'b';
  hex[63] = ' ';
  assert_false(digest_from_hex(&digest, hex, 64));
  assert_true(digest_equal(&before, &digest));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_digest__is_blake2b_256),
      cmocka_unit_test(test_digest__hex_round_trip_is_equal),
      cmocka_unit_test(test_digest__every_other_spelling_is_refused),
  };
  return cmocka_run_group_tests_name("digest", tests, NULL, NULL);
}
