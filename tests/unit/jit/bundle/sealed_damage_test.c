/* Sealed programs that are not as they were written: each is refused with one sentence. */
#include "sealed_sample.h"

static void test_sealed__any_changed_byte_is_noticed(void **state) {
  struct sealed_sample sample;
  (void)state;
  sealed_sample_make(&sample);
  for (size_t i = 0; i < sample.bytes; i++) {
    kjit_error error = {0};
    sample.data[i] ^= 0x10;
    assert_status(KJIT_ERR_CORRUPT, sealed_read_all(&sample.mem, sample.data, sample.bytes, NULL, &error), &error);
    assert_true(error.message[0] && !strchr(error.message, '\n'));
    sample.data[i] ^= 0x10;
  }
  assert_status(KJIT_OK, sealed_read_all(&sample.mem, sample.data, sample.bytes, NULL, NULL), NULL);
  sealed_sample_end(&sample);
}

static void test_sealed__any_other_length_is_noticed(void **state) {
  struct sealed_sample sample;
  (void)state;
  sealed_sample_make(&sample);
  for (size_t bytes = 0; bytes < sample.bytes + 300; bytes++) {
    if (bytes == sample.bytes) continue;
    uint8_t *exact = calloc(1, bytes ? bytes : 1);
    memcpy(exact, sample.data, bytes < sample.bytes ? bytes : sample.bytes);
    const kjit_status status = sealed_read_all(&sample.mem, exact, bytes, NULL, NULL);
    assert_true(status == KJIT_ERR_CORRUPT ||
                (status == KJIT_ERR_UNTRUSTED && bytes == sample.bytes + BUNDLE_SIGNATURE_BYTES));
    free(exact);
  }
  sealed_sample_end(&sample);
}

/* A program of this index and these texts, whose sizes and digests are right. */
static kjit_status read_made(const char *index, const char *texts, size_t texts_bytes, kjit_error *error) {
  const size_t first = frame_stored_bytes(strlen(index)), second = texts ? frame_stored_bytes(texts_bytes) : 0;
  const size_t bytes = SEALED_HEAD_BYTES + first + second;
  struct digest digest;
  struct mem mem;
  (void)mem_init(&mem, NULL);
  uint8_t *data = calloc(1, bytes), *at = data + SEALED_HEAD_BYTES;
  memcpy(data, SEALED_MAGIC, SEALED_MAGIC_BYTES);
  bytes_put_u32(data + SEALED_AT_VERSION, SEALED_VERSION);
  bytes_put_u32(data + SEALED_AT_HEAD_BYTES, SEALED_HEAD_BYTES);
  bytes_put_u64(data + SEALED_AT_BODY_BYTES, bytes);
  bytes_put_u32(data + SEALED_AT_INDEX_PACKED, (uint32_t)first);
  bytes_put_u32(data + SEALED_AT_INDEX_BYTES, (uint32_t)strlen(index));
  frame_store(index, strlen(index), at);
  digest_of(&digest, at, first);
  memcpy(data + SEALED_AT_INDEX_DIGEST, digest.bytes, sizeof digest.bytes);
  if (texts) {
    frame_store(texts, texts_bytes, at + first);
    digest_of(&digest, at + first, second);
    memcpy(data + SEALED_AT_TEXTS_DIGEST, digest.bytes, sizeof digest.bytes);
  }
  const kjit_status status = sealed_read_all(&mem, data, bytes, NULL, error);
  free(data);
  return status;
}

#define HEAD SEALED_INDEX_HEAD
/* The digest of "x". */
#define X_DIGEST    "digest 64:d161d71145abeec5ef15abcf0459cec60a27321e2f0ac0ef7ace5254f5944476\n"
#define FILE_A      "source 1:a\n" X_DIGEST "length 1:1\n"
#define FILE_B      "source 1:b\n" X_DIGEST "length 1:1\n"
#define FILE_C      "source 1:c\n" X_DIGEST "length 1:1\n"
#define UNIT(files) "label 1:a\ntarget 5:sm_90\nprologue 14:#define N 1\n#\n\nentry 1:k\nfiles " files "\n"

static void test_sealed__indexes_that_no_writer_makes_are_refused(void **state) {
  static const struct {
    const char *index, *sentence;
  } cases[] = {
      {"", "does not begin"},
      {"kjit-program 2\n", "does not begin"},
      {HEAD, "names no file"},
      {HEAD UNIT("1:0"), "names no file"},
      {HEAD "source 1:a\n" UNIT("1:0"), "without its digest"},
      {HEAD "source 0:\n" X_DIGEST "length 1:1\n" UNIT("1:0"), "without a name"},
      {HEAD "source 1:a\ndigest 2:zz\nlength 1:1\n" UNIT("1:0"), "digest"},
      {HEAD "source 1:a\n" X_DIGEST "length 2:01\n" UNIT("1:0"), "length"},
      {HEAD "source 1:a\n" X_DIGEST "length 20:99999999999999999999\n" UNIT("1:0"), "length"},
      {HEAD FILE_A, "no unit"},
      {HEAD FILE_A UNIT("1:1"), "numbers"},
      {HEAD FILE_A UNIT("1:x"), "numbers"},
      {HEAD FILE_A UNIT("2:0 "), "numbers"},
      {HEAD FILE_A UNIT("0:"), "numbers"},
      {HEAD FILE_A FILE_B FILE_C UNIT("5:0 2 1"), "numbers"},
      {HEAD FILE_A FILE_B UNIT("5:0 1 1"), "numbers"},
      {HEAD FILE_A "label 1:a\ntarget 5:sm_xx\n", "architecture"},
      {HEAD FILE_A "label 1:a\ntarget 5:sm_90\nentry 1:k\nfiles 1:0\n", "prologue"},
      {HEAD FILE_A "label 1:a\ntarget 5:sm_90\nprologue 9:#define N\nentry 1:k\nfiles 1:0\n", "prologue"},
      {HEAD FILE_A "label 1:a\ntarget 5:sm_90\nprologue 0:\nfiles 1:0\n", "no kernel"},
      {HEAD FILE_A "label 1:a\ntarget 5:sm_90\nprologue 0:\nentry 1:k\n", "no files"},
      {HEAD FILE_A UNIT("1:0") "files 1:0\n", "end"},
      {HEAD FILE_A UNIT("1:0") "junk", "end"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    kjit_error error = {0};
    assert_status(KJIT_ERR_CORRUPT, read_made(cases[i].index, NULL, 0, &error), &error);
    assert_contains(error.message, cases[i].sentence);
  }
  kjit_error error = {0};
  assert_status(KJIT_OK, read_made(HEAD FILE_A FILE_B FILE_C UNIT("5:0 1 2"), NULL, 0, &error), &error);
}

/* Or else a program could put another text's kernel into the cache under this text's key. */
static void test_sealed__a_text_of_another_digest_is_refused(void **state) {
  char index[512], hex[DIGEST_HEX_BYTES];
  struct digest digest;
  kjit_error error = {0};
  (void)state;
  digest_of(&digest, "x", 1);
  digest_to_hex(&digest, hex);
  snprintf(index, sizeof index, HEAD "source 1:a\ndigest 64:%s\nlength 1:1\n" UNIT("1:0"), hex);
  assert_status(KJIT_OK, read_made(index, "x", 2, &error), &error);
  assert_status(KJIT_ERR_CORRUPT, read_made(index, "y", 2, &error), &error);
  assert_contains(error.message, "digest");
  memset(&error, 0, sizeof error);
  assert_status(KJIT_ERR_CORRUPT, read_made(index, "x\0z", 4, &error), &error);
}

static void test_sealed__without_memory_nothing_leaks(void **state) {
  struct failing_allocator memory;
  struct sealed_sample sample;
  (void)state;
  sealed_sample_make(&sample);
  kjit_status status = KJIT_ERR_NO_MEMORY;
  for (long fail = 0; status == KJIT_ERR_NO_MEMORY; fail++) {
    struct mem mem;
    failing_allocator_reset(&memory, fail);
    const kjit_allocator hooks = failing_allocator_hooks(&memory);
    mem_init(&mem, &hooks);
    status = sealed_read_all(&mem, sample.data, sample.bytes, NULL, NULL);
    assert_int_equal(0, atomic_load(&memory.live));
    assert_true(fail < 10000);
  }
  assert_status(KJIT_OK, status, NULL);
  sealed_sample_end(&sample);
}

static void test_sealed__signatures_are_as_those_of_bundles(void **state) {
  struct sealed_sample sample;
  struct trust_key seed, ours, theirs;
  (void)state;
  sealed_sample_make(&sample);
  const size_t bytes = sample.bytes + BUNDLE_SIGNATURE_BYTES;
  uint8_t *data = malloc(bytes);
  memcpy(data, sample.data, sample.bytes);
  trust_generate(&seed, &theirs);
  trust_generate(&seed, &ours);
  trust_sign(data, &seed, data + sample.bytes);
  const struct trust us = {&ours, 1}, them = {&theirs, 1};
  kjit_error error = {0};
  assert_status(KJIT_OK, sealed_read_all(&sample.mem, data, bytes, NULL, &error), &error);
  assert_status(KJIT_OK, sealed_read_all(&sample.mem, data, bytes, &us, &error), &error);
  assert_status(KJIT_ERR_UNTRUSTED, sealed_read_all(&sample.mem, data, bytes, &them, NULL), NULL);
  assert_status(KJIT_ERR_UNTRUSTED, sealed_read_all(&sample.mem, sample.data, sample.bytes, &us, NULL), NULL);
  for (size_t i = 0; i < bytes; i += 7) {
    data[i] ^= 1;
    const kjit_status status = sealed_read_all(&sample.mem, data, bytes, &us, NULL);
    assert_status(KJIT_ERR_UNTRUSTED, status, NULL);
    data[i] ^= 1;
  }
  free(data);
  sealed_sample_end(&sample);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sealed__any_changed_byte_is_noticed),
      cmocka_unit_test(test_sealed__any_other_length_is_noticed),
      cmocka_unit_test(test_sealed__indexes_that_no_writer_makes_are_refused),
      cmocka_unit_test(test_sealed__a_text_of_another_digest_is_refused),
      cmocka_unit_test(test_sealed__without_memory_nothing_leaks),
      cmocka_unit_test(test_sealed__signatures_are_as_those_of_bundles),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
