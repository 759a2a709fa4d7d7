#include "bundle_sample.h"

static void test_bundle__any_changed_byte_is_noticed(void **state) {
  struct sample sample;
  (void)state;
  sample_make(&sample, 8, sample_compress);
  for (size_t i = 0; i < sample.bytes; i++) {
    kjit_error error = {0};
    sample.data[i] ^= 0x10;
    assert_status(KJIT_ERR_CORRUPT, sample_read_all(&sample, sample.data, sample.bytes, NULL, &error), &error);
    assert_true(error.message[0]);
    sample.data[i] ^= 0x10;
  }
  assert_status(KJIT_OK, sample_read_all(&sample, sample.data, sample.bytes, NULL, NULL), NULL);
  sample_end(&sample);
}

static void test_bundle__any_other_length_is_noticed(void **state) {
  struct sample sample;
  (void)state;
  sample_make(&sample, 8, sample_compress);
  uint8_t *longer = calloc(1, sample.bytes + 300);
  memcpy(longer, sample.data, sample.bytes);
  for (size_t bytes = 0; bytes < sample.bytes + 300; bytes++) {
    if (bytes == sample.bytes) continue;
    uint8_t *exact = malloc(bytes ? bytes : 1);
    memcpy(exact, longer, bytes);
    const kjit_status status = sample_read_all(&sample, exact, bytes, NULL, NULL);
    assert_true(status == KJIT_ERR_CORRUPT ||
                (status == KJIT_ERR_UNTRUSTED && bytes == sample.bytes + BUNDLE_SIGNATURE_BYTES));
    free(exact);
  }
  free(longer);
  sample_end(&sample);
}

/* Each spoils a sound table of three groups and their kernels; the digest is made right afterwards. */
struct hostility {
  const char *what, *sentence;
  void (*spoil)(const struct sample *sample);
};

static void spoil_order(const struct sample *sample) {
  uint8_t request[DIGEST_BYTES];
  memcpy(request, sample_record(sample, 0), sizeof request);
  memcpy(sample_record(sample, 0), sample_record(sample, 1), sizeof request);
  memcpy(sample_record(sample, 1), request, sizeof request);
}

static void spoil_repetition(const struct sample *sample) {
  memcpy(sample_record(sample, 1), sample_record(sample, 0), DIGEST_BYTES);
}

static void spoil_overlap(const struct sample *sample) {
  uint8_t *at = sample_record(sample, 1) + RECORD_AT_OFFSET;
  bytes_put_u64(at, bytes_get_u64(at) - 1);
}

static void spoil_gap(const struct sample *sample) {
  uint8_t *at = sample_record(sample, 2) + RECORD_AT_OFFSET;
  bytes_put_u64(at, bytes_get_u64(at) + 1);
}

static void spoil_far_offset(const struct sample *sample) {
  bytes_put_u64(sample_record(sample, 1) + RECORD_AT_OFFSET, UINT64_MAX - 7);
}

static void spoil_packed_size(const struct sample *sample) {
  bytes_put_u32(sample_record(sample, 1) + RECORD_AT_PACKED, UINT32_MAX);
}

static void spoil_no_packed_bytes(const struct sample *sample) {
  bytes_put_u32(sample_record(sample, 1) + RECORD_AT_PACKED, 0);
}

static void spoil_huge(const struct sample *sample) {
  bytes_put_u32(sample_record(sample, 1) + RECORD_AT_BYTES, UINT32_MAX);
}

static void spoil_tiny(const struct sample *sample) {
  bytes_put_u32(sample_record(sample, 1) + RECORD_AT_BYTES, 3);
}

static void spoil_group_index(const struct sample *sample) {
  bytes_put_u32(sample_record(sample, 1) + RECORD_AT_GROUP, 2);
}

static void spoil_record_reserved(const struct sample *sample) {
  sample_record(sample, 1)[BUNDLE_RECORD_BYTES - 1] = 1;
}

static void spoil_arch_order(const struct sample *sample) {
  memcpy(sample_group(sample, 1) + GROUP_AT_ARCH, "sm_75\0", 7);
}

static void spoil_arch_name(const struct sample *sample) {
  memcpy(sample_group(sample, 0) + GROUP_AT_ARCH, "hello", 6);
}

static void spoil_arch_tail(const struct sample *sample) {
  sample_group(sample, 0)[GROUP_AT_ARCH + BUNDLE_ARCH_BYTES - 1] = 'x';
}

static void spoil_dictionary_size(const struct sample *sample) {
  bytes_put_u32(sample_group(sample, 0) + GROUP_AT_BYTES, BUNDLE_MAX_DICTIONARY_BYTES + 1);
}

static void spoil_dictionary_overlap(const struct sample *sample) {
  uint8_t *at = sample_group(sample, 1) + GROUP_AT_OFFSET;
  bytes_put_u64(at, bytes_get_u64(at) - 8);
}

static void spoil_head_reserved(const struct sample *sample) {
  sample->data[BUNDLE_AT_HEAD_RESERVED] = 1;
}

static void spoil_record_count(const struct sample *sample) {
  bytes_put_u32(sample->data + BUNDLE_AT_RECORDS, BUNDLE_MAX_RECORDS + 1);
}

static void spoil_group_count(const struct sample *sample) {
  bytes_put_u32(sample->data + BUNDLE_AT_GROUPS, UINT32_MAX);
}

static void spoil_index_size(const struct sample *sample) {
  bytes_put_u32(sample->data + BUNDLE_AT_RECORDS, BUNDLE_MAX_RECORDS);
}

static void spoil_body_size(const struct sample *sample) {
  bytes_put_u64(sample->data + BUNDLE_AT_BODY_BYTES, UINT64_MAX - 50);
}

static const struct hostility hostilities[] = {
    {"wrongly sorted", "not in their order", spoil_order},
    {"the same request twice", "not in their order", spoil_repetition},
    {"overlapping", "not where the part before it ends", spoil_overlap},
    {"with a gap", "not where the part before it ends", spoil_gap},
    {"an offset that wraps", "not where the part before it ends", spoil_far_offset},
    {"beyond the file", "does not fit", spoil_packed_size},
    {"a kernel of no bytes", "does not fit", spoil_no_packed_bytes},
    {"a bomb", "larger than an entry may be", spoil_huge},
    {"smaller than an entry", "shorter than an empty entry", spoil_tiny},
    {"a group that is not there", "no architecture", spoil_group_index},
    {"a reserved field of a record", "reserved", spoil_record_reserved},
    {"architectures out of order", "not in their order", spoil_arch_order},
    {"no architecture", "name is not valid", spoil_arch_name},
    {"a name without end", "name is not valid", spoil_arch_tail},
    {"a dictionary too large", "larger than one may be", spoil_dictionary_size},
    {"dictionaries overlapping", "not where the part before it ends", spoil_dictionary_overlap},
    {"a reserved field of the head", "reserved", spoil_head_reserved},
    {"too many kernels", "more kernels", spoil_record_count},
    {"too many architectures", "more architectures", spoil_group_count},
    {"an index beyond the file", "does not fit", spoil_index_size},
    {"a size beyond all bounds", "larger than a bundle may be", spoil_body_size},
};

static void test_bundle__hostile_tables_are_refused_with_a_sentence(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof hostilities / sizeof *hostilities; i++) {
    struct sample sample;
    kjit_error error = {0};
    sample_make(&sample, 10, sample_compress);
    hostilities[i].spoil(&sample);
    sample_seal(sample.data);
    print_message("# %s\n", hostilities[i].what);
    assert_status(KJIT_ERR_CORRUPT, sample_read_all(&sample, sample.data, sample.bytes, NULL, &error), &error);
    assert_contains(error.message, hostilities[i].sentence);
    sample_end(&sample);
  }
}

/* Replace payload `index` by another of the same size, with a digest that is right. */
static void plant(const struct sample *sample, uint32_t index, const uint8_t *payload, size_t bytes) {
  uint8_t *row = sample_record(sample, index);
  struct digest digest;
  assert_int_equal(bytes, bytes_get_u32(row + RECORD_AT_PACKED));
  memcpy(sample->data + bytes_get_u64(row + RECORD_AT_OFFSET), payload, bytes);
  digest_of(&digest, payload, bytes);
  memcpy(row + RECORD_AT_DIGEST, digest.bytes, sizeof digest.bytes);
  sample_seal(sample->data);
}

static void test_bundle__a_kernel_under_another_request_is_refused(void **state) {
  struct sample sample;
  kjit_error error = {0};
  (void)state;
  sample_make(&sample, 3, NULL);
  const uint8_t *row = sample_record(&sample, 0), *other = sample_record(&sample, 1);
  const size_t bytes = bytes_get_u32(row + RECORD_AT_PACKED);
  uint8_t *payload = malloc(bytes);
  memcpy(payload, sample.data + bytes_get_u64(row + RECORD_AT_OFFSET), bytes);
  if (bytes == bytes_get_u32(other + RECORD_AT_PACKED)) plant(&sample, 1, payload, bytes);
  assert_status(KJIT_ERR_CORRUPT, sample_read_all(&sample, sample.data, sample.bytes, NULL, &error), &error);
  assert_contains(error.message, "another request");
  free(payload);
  sample_end(&sample);
}

static void test_bundle__a_frame_of_another_size_is_refused(void **state) {
  struct sample sample;
  kjit_error error = {0};
  (void)state;
  sample_make(&sample, 3, NULL);
  uint8_t *row = sample_record(&sample, 0);
  bytes_put_u32(row + RECORD_AT_BYTES, bytes_get_u32(row + RECORD_AT_BYTES) - 16);
  sample_seal(sample.data);
  assert_status(KJIT_ERR_CORRUPT, sample_read_all(&sample, sample.data, sample.bytes, NULL, &error), &error);
  assert_contains(error.message, "states another size");
  sample_end(&sample);
}

static void test_bundle__a_spoiled_payload_with_a_right_digest_is_refused(void **state) {
  struct sample sample;
  (void)state;
  sample_make(&sample, 1, sample_compress);
  const uint8_t *row = sample_record(&sample, 0);
  const size_t bytes = bytes_get_u32(row + RECORD_AT_PACKED);
  uint8_t *payload = malloc(bytes);
  for (size_t i = 0; i < bytes; i++) {
    memcpy(payload, sample.data + bytes_get_u64(row + RECORD_AT_OFFSET), bytes);
    payload[i] ^= 0x40;
    plant(&sample, 0, payload, bytes);
    const kjit_status status = sample_read_all(&sample, sample.data, sample.bytes, NULL, NULL);
    /* A bit of zstd's frame may mean nothing; then the kernel is the right one, which the entry's checksum says. */
    assert_true(status == KJIT_ERR_CORRUPT || status == KJIT_OK);
    payload[i] ^= 0x40;
    plant(&sample, 0, payload, bytes);
  }
  free(payload);
  sample_end(&sample);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bundle__any_changed_byte_is_noticed),
      cmocka_unit_test(test_bundle__any_other_length_is_noticed),
      cmocka_unit_test(test_bundle__hostile_tables_are_refused_with_a_sentence),
      cmocka_unit_test(test_bundle__a_kernel_under_another_request_is_refused),
      cmocka_unit_test(test_bundle__a_frame_of_another_size_is_refused),
      cmocka_unit_test(test_bundle__a_spoiled_payload_with_a_right_digest_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
