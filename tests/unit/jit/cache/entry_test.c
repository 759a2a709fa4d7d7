#define XXH_INLINE_ALL
#include <stdbool.h>
#include <xxhash.h>

#include "jit/cache/entry_layout.h"
#include "support/test.h"

/* Written out, so that the golden files depend on the format alone. */
static const char key_text[] = "kjit-key 1\n"
                               "entry-format 1:2\n"
                               "target 5:sm_80\n"
                               "entry 1:k\n"
                               "option 11:--std=c++17\n"
                               "prologue 22:#define KJIT_NUMBER 1\n\n"
                               "source 4:k.cu\n"
                               "digest 64:a84f93ca1513a2bbcce2359d3209288b3fc8b9d6298e4177ed430e5a57b14122\n"
                               "compiler 12:nvrtc-golden\n";

static const char symbols[] = "kernel 32 4 8 1024 256 k\n"
                              "kernel 8 0 0 0 0 _ZN1n1kILi4EEEvv\n"
                              "name _ZN1n1kILi4EEEvv n::k< 4 >\n";

/* A small entry and its image. */
struct sample {
  struct entry entry;
  uint8_t cubin[77];
  uint8_t *image;
  size_t bytes;
};

static struct entry_text text_of(const char *data) {
  return (struct entry_text){data, strlen(data)};
}

static int setup(void **state) {
  struct sample *sample = calloc(1, sizeof *sample);
  *state = sample;
  for (size_t i = 0; i < sizeof sample->cubin; i++)
    sample->cubin[i] = (uint8_t)(i * 37 + 1);
  sample->entry.key_text = text_of(key_text);
  sample->entry.family = text_of("custom");
  sample->entry.label = text_of("number 1");
  sample->entry.message = text_of("");
  sample->entry.log = text_of("k.cu(1): warning: nothing to do\n");
  sample->entry.symbols = text_of(symbols);
  sample->entry.cubin = sample->cubin;
  sample->entry.cubin_bytes = sizeof sample->cubin;
  sample->entry.figures = (struct entry_figures){32, 4, 8, 1024, 256, 123456789};
  sample->bytes = entry_image_bytes(&sample->entry);
  sample->image = malloc(sample->bytes);
  entry_write(&sample->entry, sample->image);
  return 0;
}

static int teardown(void **state) {
  struct sample *sample = *state;
  free(sample->image);
  free(sample);
  return 0;
}

/* Make the checksum right again, as a writer with an error in it would. */
static void seal(uint8_t *image, size_t bytes) {
  const XXH128_hash_t sum = XXH3_128bits(image, bytes - ENTRY_CHECKSUM_BYTES);
  for (size_t i = 0; i < 8; i++) {
    image[bytes - 16 + i] = (uint8_t)(sum.low64 >> (8 * i));
    image[bytes - 8 + i] = (uint8_t)(sum.high64 >> (8 * i));
  }
}

static void test_entry__written_entry_reads_back(void **state) {
  const struct sample *sample = *state;
  struct entry read;
  assert_null(entry_read(sample->image, sample->bytes, &read));
  assert_string_equal(sample->entry.key_text.data, read.key_text.data);
  assert_string_equal("custom", read.family.data);
  assert_string_equal("number 1", read.label.data);
  assert_string_equal("", read.message.data);
  assert_string_equal("k.cu(1): warning: nothing to do\n", read.log.data);
  assert_string_equal(symbols, read.symbols.data);
  assert_int_equal(sizeof sample->cubin, read.cubin_bytes);
  assert_memory_equal(sample->cubin, read.cubin, sizeof sample->cubin);
  assert_int_equal(0, ((const uint8_t *)read.cubin - sample->image) % ENTRY_CUBIN_ALIGN);
  assert_memory_equal(&sample->entry.figures, &read.figures, sizeof read.figures);
}

static void test_entry__bytes_are_those_of_the_golden_file(void **state) {
  const struct sample *sample = *state;
  uint8_t golden[4096];
  FILE *file = fopen(KJIT_TEST_GOLDEN "/entries/valid-2.kjit", "rb");
  assert_non_null(file);
  const size_t bytes = fread(golden, 1, sizeof golden, file);
  fclose(file);
  assert_int_equal(sample->bytes, bytes);
  assert_memory_equal(sample->image, golden, bytes);
}

static void test_entry__every_flipped_bit_is_rejected(void **state) {
  struct sample *sample = *state;
  struct entry read;
  for (size_t i = 0; i < sample->bytes; i++)
    for (int bit = 0; bit < 8; bit++) {
      sample->image[i] ^= (uint8_t)(1 << bit);
      assert_non_null(entry_read(sample->image, sample->bytes, &read));
      sample->image[i] ^= (uint8_t)(1 << bit);
    }
}

static void test_entry__every_shorter_length_is_rejected(void **state) {
  const struct sample *sample = *state;
  struct entry read;
  for (size_t bytes = 0; bytes < sample->bytes; bytes++) {
    uint8_t *cut = malloc(bytes + 1); /* its own block, so that AddressSanitizer sees a read beyond */
    memcpy(cut, sample->image, bytes);
    assert_non_null(entry_read(cut, bytes, &read));
    free(cut);
  }
}

static void test_entry__trailing_byte_is_rejected(void **state) {
  const struct sample *sample = *state;
  struct entry read;
  uint8_t *longer = calloc(1, sample->bytes + 1);
  memcpy(longer, sample->image, sample->bytes);
  assert_non_null(entry_read(longer, sample->bytes + 1, &read));
  free(longer);
}

/* A right checksum over wrong contents: each header byte set to each of some values. */
static void test_entry__header_is_bounded_behind_a_right_checksum(void **state) {
  struct sample *sample = *state;
  static const uint8_t values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
  for (size_t at = 0; at < ENTRY_HEADER_BYTES; at++)
    for (size_t i = 0; i < sizeof values; i++) {
      struct entry read;
      const uint8_t before = sample->image[at];
      sample->image[at] = values[i];
      seal(sample->image, sample->bytes);
      const bool figures = at >= ENTRY_AT_COMPILE_NS && at < ENTRY_AT_TEXT_BYTES;
      if (!entry_read(sample->image, sample->bytes, &read)) assert_true(figures || before == values[i]);
      sample->image[at] = before;
    }
}

static void reject_sealed(struct sample *sample, size_t at, uint8_t value, const char *damage) {
  struct entry read;
  const uint8_t before = sample->image[at];
  sample->image[at] = value;
  seal(sample->image, sample->bytes);
  assert_contains(entry_read(sample->image, sample->bytes, &read), damage);
  sample->image[at] = before;
  seal(sample->image, sample->bytes);
}

static void test_entry__each_kind_of_damage_is_named(void **state) {
  struct sample *sample = *state;
  const size_t key_end = ENTRY_HEADER_BYTES + strlen(key_text);
  const size_t symbols_at = (size_t)((const uint8_t *)memmem(sample->image, sample->bytes, symbols, 8) - sample->image);
  reject_sealed(sample, 0, 'K', "does not begin as an entry does");
  reject_sealed(sample, ENTRY_AT_VERSION, 1, "another format version");
  reject_sealed(sample, ENTRY_AT_HEADER_BYTES, 64, "wrong header size");
  reject_sealed(sample, ENTRY_AT_FILE_BYTES, (uint8_t)(sample->bytes + 1), "size differs");
  reject_sealed(sample, ENTRY_AT_CUBIN_BYTES + 3, 1, "the cubin does not fit");
  reject_sealed(sample, ENTRY_AT_CUBIN_BYTES + 7, 0xff, "the cubin does not fit");
  reject_sealed(sample, ENTRY_AT_TEXT_BYTES + 3, 0xff, "a text does not fit");
  reject_sealed(sample, ENTRY_AT_RESERVED, 1, "a reserved field is set");
  reject_sealed(sample, ENTRY_HEADER_BYTES, 'x', "the key text breaks its grammar");
  reject_sealed(sample, ENTRY_HEADER_BYTES + 3, 0, "a text does not fit, or holds a NUL");
  reject_sealed(sample, symbols_at, 'x', "the symbols break their grammar");
  reject_sealed(sample, symbols_at + strlen("kernel 32 4 8 1024 256"), '\n', "the symbols break their grammar");
  reject_sealed(sample, symbols_at + strlen(symbols) - 1, ' ', "the symbols break their grammar");
  reject_sealed(sample, key_end, 'x', "a text does not fit, or holds a NUL");
  reject_sealed(sample, sample->bytes - ENTRY_CHECKSUM_BYTES - 1, 1, "padding is not zero");
}

static void test_entry__kernel_with_a_failure_message_is_rejected(void **state) {
  struct sample *sample = *state;
  struct entry read;
  sample->entry.message = text_of("error");
  uint8_t *image = malloc(entry_image_bytes(&sample->entry));
  entry_write(&sample->entry, image);
  assert_string_equal("neither a kernel nor a failure", entry_read(image, entry_image_bytes(&sample->entry), &read));
  free(image);
}

static void test_entry__failure_reads_back_without_cubin(void **state) {
  struct sample *sample = *state;
  struct entry read;
  sample->entry.message = text_of("error");
  sample->entry.cubin_bytes = 0;
  uint8_t *image = malloc(entry_image_bytes(&sample->entry));
  entry_write(&sample->entry, image);
  assert_null(entry_read(image, entry_image_bytes(&sample->entry), &read));
  assert_string_equal("error", read.message.data);
  assert_int_equal(0, read.cubin_bytes);
  free(image);
}

static void test_entry__parts_beyond_their_bounds_have_no_size(void **state) {
  struct sample *sample = *state;
  struct entry entry = sample->entry;
  entry.label.bytes = ENTRY_LINE_MAX_BYTES + 1;
  assert_int_equal(0, entry_image_bytes(&entry));
  entry = sample->entry;
  entry.key_text.bytes = KEY_MAX_BYTES + 1;
  assert_int_equal(0, entry_image_bytes(&entry));
  entry = sample->entry;
  entry.log.bytes = ENTRY_LOG_MAX_BYTES + 1;
  assert_int_equal(0, entry_image_bytes(&entry));
  entry = sample->entry;
  entry.cubin_bytes = (size_t)ENTRY_MAX_BYTES;
  assert_int_equal(0, entry_image_bytes(&entry));
}

/* The files that stand for damage, old versions included once there are any: each is refused, none crashes. */
static void test_entry__golden_damaged_files_are_rejected(void **state) {
  (void)state;
  static const char *const names[] = {
      "wrong-magic",   "version-1",          "version-3",        "cubin-too-long", "text-too-long",
      "key-malformed", "padding-not-zero",   "reserved-set",     "checksum",       "truncated",
      "empty",         "failure-with-cubin", "symbols-malformed"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[512];
    uint8_t bytes[4096];
    struct entry read;
    snprintf(path, sizeof path, KJIT_TEST_GOLDEN "/entries/invalid-%s.kjit", names[i]);
    FILE *file = fopen(path, "rb");
    if (!file) print_error("missing: %s\n", path);
    assert_non_null(file);
    const size_t count = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    assert_non_null(entry_read(bytes, count, &read));
  }
}

#define ENTRY_TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      ENTRY_TEST(test_entry__written_entry_reads_back),
      ENTRY_TEST(test_entry__bytes_are_those_of_the_golden_file),
      ENTRY_TEST(test_entry__every_flipped_bit_is_rejected),
      ENTRY_TEST(test_entry__every_shorter_length_is_rejected),
      ENTRY_TEST(test_entry__trailing_byte_is_rejected),
      ENTRY_TEST(test_entry__header_is_bounded_behind_a_right_checksum),
      ENTRY_TEST(test_entry__each_kind_of_damage_is_named),
      ENTRY_TEST(test_entry__kernel_with_a_failure_message_is_rejected),
      ENTRY_TEST(test_entry__failure_reads_back_without_cubin),
      ENTRY_TEST(test_entry__parts_beyond_their_bounds_have_no_size),
      ENTRY_TEST(test_entry__golden_damaged_files_are_rejected),
  };
  return cmocka_run_group_tests_name("entry", tests, NULL, NULL);
}
