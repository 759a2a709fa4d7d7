/* Structs that cross the API: their sizes are ABI, and each may be older or newer than the library. */
#include "fixture.h"

/* As released; a struct that grows keeps its line here and gets another one. */
static void test_structs__sizes_stay(void **state) {
  (void)state;
  assert_int_equal(512, sizeof(kjit_error));
  assert_int_equal(88, sizeof(kjit_tensor));
  assert_int_equal(272, sizeof(kjit_runtime_options));
  assert_int_equal(248, sizeof(kjit_runtime_stats));
  assert_int_equal(168, sizeof(kjit_build_request));
  assert_int_equal(104, sizeof(kjit_artifact_info));
  assert_int_equal(144, sizeof(kjit_key));
  assert_int_equal(64, sizeof(kjit_phases));
  assert_int_equal(88, sizeof(kjit_launch));
  assert_int_equal(224, sizeof(kjit_device_info));
  assert_int_equal(3192, sizeof(kjit_doctor_report));
  assert_int_equal(136, sizeof(kjit_cache_entry));
  assert_int_equal(56, sizeof(kjit_cache_report));
  assert_int_equal(144, sizeof(kjit_cache_stats));
  assert_int_equal(536, sizeof(kjit_attention_args));
  assert_int_equal(1080, sizeof(kjit_attention_backward_args));
  assert_int_equal(52, sizeof(kjit_flash_config));
  assert_int_equal(80, sizeof(kjit_attention_problem));
  assert_int_equal(52, sizeof(kjit_attention_sm90_config));
  assert_int_equal(36, sizeof(kjit_attention_short_sm90_config));
}

static void test_structs__defaults_are_zero_but_for_the_size(void **state) {
  (void)state;
#define ASSERT_DEFAULT(type)                                                                                           \
  do {                                                                                                                 \
    type expected;                                                                                                     \
    memset(&expected, 0, sizeof expected);                                                                             \
    expected.struct_size = sizeof expected;                                                                            \
    const type given = type##_default();                                                                               \
    assert_memory_equal(&expected, &given, sizeof expected);                                                           \
  } while (0)
  ASSERT_DEFAULT(kjit_runtime_options);
  ASSERT_DEFAULT(kjit_build_request);
  ASSERT_DEFAULT(kjit_attention_args);
  ASSERT_DEFAULT(kjit_attention_problem);
}

/* Larger than any struct, so that a newer one can be played. */
union newer {
  size_t struct_size;
  unsigned char bytes[8192];
};

static void newer_from(union newer *newer, const void *known, size_t bytes) {
  memset(newer, 0, sizeof *newer);
  memcpy(newer, known, bytes);
  newer->struct_size = bytes + 16;
}

static void test_structs__newer_request_is_taken_while_its_tail_is_zero(void **state) {
  struct fixture *f = *state;
  kjit_build_request request = kjit_build_request_default();
  union newer newer;
  kjit_artifact *artifact = NULL;
  request.arch = "sm_80";
  request.entry = "k";
  request.source = (kjit_source){.name = "k.cu", .text = "extern \"C\" __global__ void k() {}"};
  request.flags = KJIT_BUILD_NO_COMPILE;
  newer_from(&newer, &request, sizeof request);
  const kjit_build_request *const given = (const kjit_build_request *)&newer;
  assert_status(KJIT_ERR_NOT_FOUND, kjit_build(f->runtime, given, &artifact, &f->error), &f->error);
  newer.bytes[sizeof request + 15] = 1;
  assert_status(KJIT_ERR_UNSUPPORTED, kjit_build(f->runtime, given, &artifact, &f->error), &f->error);
  assert_contains(f->error.message, "request");
}

static void test_structs__request_without_its_size_is_refused(void **state) {
  struct fixture *f = *state;
  static const size_t wrong[] = {0, 1, 8, sizeof(kjit_build_request) / 2, SIZE_MAX};
  kjit_artifact *artifact = NULL;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    kjit_build_request request = kjit_build_request_default();
    request.struct_size = wrong[i];
    assert_status(KJIT_ERR_INVALID_ARG, kjit_build(f->runtime, &request, &artifact, &f->error), &f->error);
    assert_contains(f->error.message, "struct_size");
  }
}

static kjit_status fill_stats(struct fixture *f, void *out) {
  return kjit_runtime_get_stats(f->runtime, out, &f->error);
}

static kjit_status fill_doctor(struct fixture *f, void *out) {
  return kjit_doctor(f->runtime, out, &f->error);
}

static kjit_status fill_cache_stats(struct fixture *f, void *out) {
  return kjit_cache_get_stats(f->runtime, out, &f->error);
}

static kjit_status fill_cache_report(struct fixture *f, void *out) {
  return kjit_cache_verify(f->runtime, 0, out, &f->error);
}

static const struct {
  kjit_status (*fill)(struct fixture *f, void *out);
  size_t bytes;
  kjit_status without; /* when there is no struct at all */
} reports[] = {
    {fill_stats, sizeof(kjit_runtime_stats), KJIT_ERR_INVALID_ARG},
    {fill_doctor, sizeof(kjit_doctor_report), KJIT_ERR_INVALID_ARG},
    {fill_cache_stats, sizeof(kjit_cache_stats), KJIT_ERR_INVALID_ARG},
    {fill_cache_report, sizeof(kjit_cache_report), KJIT_OK}, /* the repair may be all that is wanted */
};

#define REPORTS (sizeof reports / sizeof *reports)

static void test_structs__smaller_report_is_filled_as_far_as_it_goes(void **state) {
  struct fixture *f = *state;
  for (size_t i = 0; i < REPORTS; i++) {
    union newer out;
    memset(&out, 0xEE, sizeof out);
    out.struct_size = reports[i].bytes - 8;
    assert_status(KJIT_OK, reports[i].fill(f, &out), &f->error);
    assert_int_equal(reports[i].bytes - 8, out.struct_size);
    assert_int_equal(0xEE, out.bytes[reports[i].bytes - 8]);
  }
}

static void test_structs__larger_report_is_zero_in_its_tail(void **state) {
  struct fixture *f = *state;
  for (size_t i = 0; i < REPORTS; i++) {
    union newer out;
    memset(&out, 0xEE, sizeof out);
    out.struct_size = reports[i].bytes + 16;
    assert_status(KJIT_OK, reports[i].fill(f, &out), &f->error);
    assert_int_equal(0, out.bytes[reports[i].bytes]);
    assert_int_equal(0, out.bytes[reports[i].bytes + 15]);
    assert_int_equal(0xEE, out.bytes[reports[i].bytes + 16]);
  }
}

static void test_structs__report_without_its_size_is_refused(void **state) {
  struct fixture *f = *state;
  for (size_t i = 0; i < REPORTS; i++) {
    union newer out = {.struct_size = 0};
    assert_status(KJIT_ERR_INVALID_ARG, reports[i].fill(f, &out), &f->error);
    assert_contains(f->error.message, "struct_size");
    assert_status(reports[i].without, reports[i].fill(f, NULL), &f->error);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_structs__sizes_stay),
      cmocka_unit_test(test_structs__defaults_are_zero_but_for_the_size),
      FIXTURE_TEST(test_structs__newer_request_is_taken_while_its_tail_is_zero),
      FIXTURE_TEST(test_structs__request_without_its_size_is_refused),
      FIXTURE_TEST(test_structs__smaller_report_is_filled_as_far_as_it_goes),
      FIXTURE_TEST(test_structs__larger_report_is_zero_in_its_tail),
      FIXTURE_TEST(test_structs__report_without_its_size_is_refused),
  };
  return cmocka_run_group_tests_name("api structs", tests, NULL, NULL);
}
