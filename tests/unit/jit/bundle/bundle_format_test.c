#include "bundle_sample.h"

static void test_bundle__every_kernel_is_found_and_equal(void **state) {
  struct sample sample;
  struct bundle *bundle;
  (void)state;
  sample_make(&sample, 20, sample_compress);
  assert_status(KJIT_OK, sample_open(&sample, sample.data, sample.bytes, NULL, &bundle, NULL), NULL);
  for (unsigned i = 0; i < 40; i++) {
    struct sample_kernel kernel;
    struct digest request;
    struct entry_image image;
    uint32_t index;
    sample_kernel_make(&kernel, i / 2, sample_archs[i % 2], "nvrtc-sample");
    sample_digest(&kernel, &request);
    assert_true(bundle_table_find(bundle_table(bundle), &request, &index));
    assert_status(KJIT_OK, bundle_read(bundle, index, &image, NULL), NULL);
    assert_string_equal(image.entry.key_text.data, kernel.key_text);
    assert_string_equal(image.entry.label.data, kernel.label);
    assert_int_equal(image.entry.cubin_bytes, sizeof kernel.cubin);
    assert_memory_equal(image.entry.cubin, kernel.cubin, sizeof kernel.cubin);
    assert_int_equal(image.entry.figures.registers, 32);
    entry_image_finish(&image, &sample.mem);
  }
  bundle_close(bundle);
  sample_end(&sample);
}

static void test_bundle__an_unknown_request_is_not_found(void **state) {
  struct sample sample;
  struct bundle *bundle;
  struct sample_kernel kernel;
  struct digest request;
  uint32_t index;
  (void)state;
  sample_make(&sample, 5, NULL);
  sample_kernel_make(&kernel, 5, "sm_80", "nvrtc-sample");
  sample_digest(&kernel, &request);
  assert_status(KJIT_OK, sample_open(&sample, sample.data, sample.bytes, NULL, &bundle, NULL), NULL);
  assert_false(bundle_table_find(bundle_table(bundle), &request, &index));
  bundle_close(bundle);
  sample_end(&sample);
}

static void test_bundle__without_kernels_opens(void **state) {
  struct sample sample;
  (void)state;
  sample_make(&sample, 0, NULL);
  assert_int_equal(sample.bytes, BUNDLE_HEAD_BYTES);
  assert_status(KJIT_OK, sample_read_all(&sample, sample.data, sample.bytes, NULL, NULL), NULL);
  sample_end(&sample);
}

static void test_bundle__kernels_alike_share_a_dictionary(void **state) {
  struct sample stored, packed;
  (void)state;
  sample_make(&stored, 40, NULL);
  sample_make(&packed, 40, sample_compress);
  assert_in_range(packed.bytes, 1, stored.bytes / 5);
  assert_true(bytes_get_u32(sample_group(&packed, 0) + GROUP_AT_PACKED) > 0);
  sample_end(&stored);
  sample_end(&packed);
}

static size_t refuse_to_compress(void *user, const void *dictionary, size_t dictionary_bytes, const void *data,
                                 size_t bytes, void *out, size_t capacity) {
  (void)user, (void)dictionary, (void)dictionary_bytes, (void)data, (void)bytes, (void)out, (void)capacity;
  return 0;
}

static void test_writer__what_does_not_compress_is_stored(void **state) {
  struct sample sample;
  (void)state;
  sample_make(&sample, 12, refuse_to_compress);
  assert_status(KJIT_OK, sample_read_all(&sample, sample.data, sample.bytes, NULL, NULL), NULL);
  sample_end(&sample);
}

static void test_writer__order_and_compile_time_change_no_byte(void **state) {
  struct sample forward, backward;
  (void)state;
  sample_begin(&forward, sample_compress);
  sample_begin(&backward, sample_compress);
  for (unsigned i = 0; i < 30; i++) {
    struct sample_kernel kernel;
    sample_add(&forward, i, sample_archs[i % 2], "nvrtc-sample");
    sample_kernel_make(&kernel, 29 - i, sample_archs[(29 - i) % 2], "nvrtc-sample");
    kernel.entry.figures.compile_ns *= 3;
    assert_status(KJIT_OK, bundle_writer_add_entry(backward.writer, &kernel.entry, NULL), NULL);
  }
  sample_build(&forward);
  sample_build(&backward);
  assert_int_equal(forward.bytes, backward.bytes);
  assert_memory_equal(forward.data, backward.data, forward.bytes);
  sample_end(&forward);
  sample_end(&backward);
}

static void test_writer__can_go_on_after_building(void **state) {
  struct sample one, two;
  (void)state;
  sample_make(&one, 10, sample_compress);
  sample_make(&two, 9, sample_compress);
  sample_add(&two, 9, "sm_80", "nvrtc-sample");
  sample_add(&two, 9, "sm_90a", "nvrtc-sample");
  sample_build(&two);
  assert_int_equal(one.bytes, two.bytes);
  assert_memory_equal(one.data, two.data, one.bytes);
  sample_end(&one);
  sample_end(&two);
}

static void test_writer__of_two_compilers_the_greater_key_stays(void **state) {
  static const char *const compilers[] = {"nvrtc-a", "nvrtc-c", "nvrtc-b"};
  struct sample sample;
  struct bundle *bundle;
  struct entry_image image;
  (void)state;
  sample_begin(&sample, NULL);
  for (int i = 0; i < 3; i++)
    sample_add(&sample, 1, "sm_80", compilers[i]);
  sample_build(&sample);
  assert_status(KJIT_OK, sample_open(&sample, sample.data, sample.bytes, NULL, &bundle, NULL), NULL);
  assert_int_equal(bundle_table(bundle)->record_count, 1);
  assert_status(KJIT_OK, bundle_read(bundle, 0, &image, NULL), NULL);
  assert_contains(image.entry.key_text.data, "nvrtc-c");
  entry_image_finish(&image, &sample.mem);
  bundle_close(bundle);
  sample_end(&sample);
}

static void test_writer__refuses_a_failed_compile(void **state) {
  struct sample sample;
  struct sample_kernel kernel;
  (void)state;
  sample_begin(&sample, NULL);
  sample_kernel_make(&kernel, 1, "sm_80", "nvrtc-sample");
  kernel.entry.cubin_bytes = 0;
  kernel.entry.message = sample_text("rejected");
  assert_status(KJIT_ERR_INVALID_ARG, bundle_writer_add_entry(sample.writer, &kernel.entry, NULL), NULL);
  sample_end(&sample);
}

/* ---- Files ---- */

static void test_bundle__a_file_that_is_cut_while_open_is_refused(void **state) {
  struct temp_folder *folder = *state;
  struct sample sample;
  struct bundle *bundle;
  struct entry_image image;
  kjit_error error = {0};
  char path[TEMP_PATH_BYTES];
  static const struct trust nobody;
  sample_make(&sample, 4, NULL);
  assert_int_equal(temp_folder_write(folder, "b.kjb", sample.data, sample.bytes), 0);
  temp_folder_path(folder, "b.kjb", path);
  const struct bundle_source source = {path, NULL, 0};
  assert_status(KJIT_OK, bundle_open(&bundle, &sample.mem, &source, &nobody, NULL), NULL);
  assert_int_equal(truncate(path, 100), 0);
  assert_status(KJIT_ERR_CORRUPT, bundle_read(bundle, 3, &image, &error), &error);
  assert_contains(error.message, "cut short");
  bundle_close(bundle);
  sample_end(&sample);
}

static void test_bundle__a_file_that_is_replaced_while_open_still_answers(void **state) {
  struct temp_folder *folder = *state;
  struct sample sample;
  struct bundle *bundle;
  struct entry_image image;
  char path[TEMP_PATH_BYTES], other[TEMP_PATH_BYTES];
  static const struct trust nobody;
  sample_make(&sample, 4, NULL);
  assert_int_equal(temp_folder_write(folder, "b.kjb", sample.data, sample.bytes), 0);
  assert_int_equal(temp_folder_write_text(folder, "other", "x"), 0);
  temp_folder_path(folder, "b.kjb", path);
  temp_folder_path(folder, "other", other);
  const struct bundle_source source = {path, NULL, 0};
  assert_status(KJIT_OK, bundle_open(&bundle, &sample.mem, &source, &nobody, NULL), NULL);
  assert_int_equal(rename(other, path), 0);
  assert_status(KJIT_OK, bundle_read(bundle, 3, &image, NULL), NULL);
  entry_image_finish(&image, &sample.mem);
  bundle_close(bundle);
  sample_end(&sample);
}

static void test_bundle__no_memory_is_told_and_nothing_leaks(void **state) {
  struct sample sample;
  struct failing_allocator allocator;
  struct mem mem;
  static const struct trust nobody;
  (void)state;
  sample_make(&sample, 10, sample_compress);
  failing_allocator_reset(&allocator, FAIL_NEVER);
  const kjit_allocator hooks = failing_allocator_hooks(&allocator);
  mem_init(&mem, &hooks);
  kjit_status status = KJIT_ERR_NO_MEMORY;
  for (long fail_at = 0; status == KJIT_ERR_NO_MEMORY; fail_at++) {
    const struct bundle_source source = {NULL, sample.data, sample.bytes};
    struct bundle *bundle;
    struct entry_image image = {0};
    failing_allocator_reset(&allocator, fail_at);
    status = bundle_open(&bundle, &mem, &source, &nobody, NULL);
    if (status == KJIT_OK) status = bundle_read(bundle, 7, &image, NULL);
    entry_image_finish(&image, &mem);
    bundle_close(bundle);
    assert_int_equal(atomic_load(&allocator.live), 0);
    assert_in_range(fail_at, 0, 50);
  }
  assert_status(KJIT_OK, status, NULL);
  sample_end(&sample);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bundle__every_kernel_is_found_and_equal),
      cmocka_unit_test(test_bundle__an_unknown_request_is_not_found),
      cmocka_unit_test(test_bundle__without_kernels_opens),
      cmocka_unit_test(test_bundle__kernels_alike_share_a_dictionary),
      cmocka_unit_test(test_writer__what_does_not_compress_is_stored),
      cmocka_unit_test(test_writer__order_and_compile_time_change_no_byte),
      cmocka_unit_test(test_writer__can_go_on_after_building),
      cmocka_unit_test(test_writer__of_two_compilers_the_greater_key_stays),
      cmocka_unit_test(test_writer__refuses_a_failed_compile),
      cmocka_unit_test_setup_teardown(test_bundle__a_file_that_is_cut_while_open_is_refused, temp_folder_setup,
                                      temp_folder_teardown),
      cmocka_unit_test_setup_teardown(test_bundle__a_file_that_is_replaced_while_open_still_answers, temp_folder_setup,
                                      temp_folder_teardown),
      cmocka_unit_test(test_bundle__no_memory_is_told_and_nothing_leaks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
