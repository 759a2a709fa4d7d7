#include "bundle_sample.h"

/* A signed sample and the keys of two parties. */
struct signed_sample {
  struct sample sample;
  uint8_t *data; /* with the signature */
  size_t bytes;
  struct trust_key seed, key, other_seed, other_key;
};

static void sign(struct signed_sample *made, const struct trust_key *seed) {
  trust_sign(made->data, seed, made->data + made->sample.bytes);
}

static int setup(void **state) {
  struct signed_sample *made = calloc(1, sizeof *made);
  *state = made;
  sample_make(&made->sample, 10, sample_compress);
  made->bytes = made->sample.bytes + BUNDLE_SIGNATURE_BYTES;
  made->data = malloc(made->bytes);
  memcpy(made->data, made->sample.data, made->sample.bytes);
  trust_generate(&made->seed, &made->key);
  trust_generate(&made->other_seed, &made->other_key);
  sign(made, &made->seed);
  return 0;
}

static int teardown(void **state) {
  struct signed_sample *made = *state;
  sample_end(&made->sample);
  free(made->data);
  free(made);
  return 0;
}

static kjit_status read_trusting(struct signed_sample *made, const uint8_t *data, size_t bytes, struct trust_key *keys,
                                 size_t count, kjit_error *error) {
  const struct trust trust = {keys, count};
  return sample_read_all(&made->sample, data, bytes, &trust, error);
}

static void test_trust__signed_by_a_trusted_key_opens(void **state) {
  struct signed_sample *made = *state;
  struct trust_key keys[] = {made->other_key, made->key};
  assert_status(KJIT_OK, read_trusting(made, made->data, made->bytes, keys, 2, NULL), NULL);
}

static void test_trust__a_signature_needs_no_trusting_runtime(void **state) {
  struct signed_sample *made = *state;
  assert_status(KJIT_OK, read_trusting(made, made->data, made->bytes, NULL, 0, NULL), NULL);
}

static void test_trust__unsigned_is_refused(void **state) {
  struct signed_sample *made = *state;
  kjit_error error = {0};
  assert_status(KJIT_ERR_UNTRUSTED, read_trusting(made, made->sample.data, made->sample.bytes, &made->key, 1, &error),
                &error);
  assert_contains(error.message, "not signed");
}

static void test_trust__signed_by_a_stranger_is_refused_by_name(void **state) {
  struct signed_sample *made = *state;
  kjit_error error = {0};
  char hex[DIGEST_HEX_BYTES];
  struct digest key;
  assert_status(KJIT_ERR_UNTRUSTED, read_trusting(made, made->data, made->bytes, &made->other_key, 1, &error), &error);
  memcpy(key.bytes, made->key.bytes, sizeof key.bytes);
  digest_to_hex(&key, hex);
  assert_contains(error.message, hex);
}

static void test_trust__a_stranger_in_the_name_of_a_trusted_key_is_refused(void **state) {
  struct signed_sample *made = *state;
  kjit_error error = {0};
  sign(made, &made->other_seed);
  memcpy(made->data + made->sample.bytes + SIGNATURE_AT_KEY, made->key.bytes, TRUST_KEY_BYTES);
  assert_status(KJIT_ERR_UNTRUSTED, read_trusting(made, made->data, made->bytes, &made->key, 1, &error), &error);
  assert_contains(error.message, "not that of its content");
}

static void test_trust__a_wrong_signature_is_refused_by_everybody(void **state) {
  struct signed_sample *made = *state;
  made->data[made->bytes - 1] ^= 1;
  assert_status(KJIT_ERR_UNTRUSTED, read_trusting(made, made->data, made->bytes, NULL, 0, NULL), NULL);
}

static void test_trust__any_altered_byte_is_refused_when_opened(void **state) {
  struct signed_sample *made = *state;
  const struct trust trust = {&made->key, 1};
  for (size_t i = 0; i < made->bytes; i++) {
    struct bundle *bundle;
    kjit_error error = {0};
    made->data[i] ^= 0x04;
    const kjit_status status = sample_open(&made->sample, made->data, made->bytes, &trust, &bundle, &error);
    made->data[i] ^= 0x04;
    assert_null(bundle);
    assert_status(KJIT_ERR_UNTRUSTED, status, &error);
    assert_true(error.message[0]);
  }
}

/* Whoever alters a bundle can make every digest right, but not the signature. */
static void test_trust__altered_and_sealed_again_is_refused(void **state) {
  struct signed_sample *made = *state;
  kjit_error error = {0};
  made->data[BUNDLE_HEAD_BYTES + 2 * BUNDLE_GROUP_BYTES + RECORD_AT_DIGEST] ^= 1;
  sample_seal(made->data);
  assert_status(KJIT_ERR_UNTRUSTED, read_trusting(made, made->data, made->bytes, &made->key, 1, &error), &error);
}

static void test_trust__an_altered_kernel_is_refused_when_opened(void **state) {
  struct signed_sample *made = *state;
  kjit_error error = {0};
  struct bundle *bundle;
  const struct trust trust = {&made->key, 1};
  made->data[made->sample.bytes - 1] ^= 1;
  assert_status(KJIT_ERR_UNTRUSTED, sample_open(&made->sample, made->data, made->bytes, &trust, &bundle, &error),
                &error);
  assert_contains(error.message, "not as it was signed");
}

static void test_trust__keys_are_checked(void **state) {
  static const char *const bad[] = {"", "12", NULL, "ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef0123456789",
                                    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0"};
  struct mem mem;
  (void)state;
  mem_init(&mem, NULL);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct trust trust;
    kjit_error error = {0};
    assert_status(KJIT_ERR_INVALID_ARG, trust_init(&trust, &mem, &bad[i], 1, &error), &error);
    assert_contains(error.message, "trusted_keys[0]");
    trust_finish(&trust, &mem);
  }
}

#define TRUST_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TRUST_TEST(test_trust__signed_by_a_trusted_key_opens),
      TRUST_TEST(test_trust__a_signature_needs_no_trusting_runtime),
      TRUST_TEST(test_trust__unsigned_is_refused),
      TRUST_TEST(test_trust__signed_by_a_stranger_is_refused_by_name),
      TRUST_TEST(test_trust__a_stranger_in_the_name_of_a_trusted_key_is_refused),
      TRUST_TEST(test_trust__a_wrong_signature_is_refused_by_everybody),
      TRUST_TEST(test_trust__any_altered_byte_is_refused_when_opened),
      TRUST_TEST(test_trust__altered_and_sealed_again_is_refused),
      TRUST_TEST(test_trust__an_altered_kernel_is_refused_when_opened),
      cmocka_unit_test(test_trust__keys_are_checked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
