#include "base/target.h"

#include "support/test.h"
#include <stdbool.h>

static void assert_parsed(const char *name, uint32_t capability, char suffix) {
  struct target target;
  kjit_error error = {0};
  assert_status(KJIT_OK, target_parse(&target, name, &error), &error);
  assert_string_equal(name, target.name);
  assert_int_equal(capability, target.capability);
  assert_int_equal(suffix, target.suffix);
}

static void test_target__names_are_read(void **state) {
  (void)state;
  assert_parsed("sm_80", 80, 0);
  assert_parsed("sm_90a", 90, 'a');
  assert_parsed("sm_100f", 100, 'f');
  assert_parsed("sm_121", 121, 0);
}

static void test_target__everything_else_is_refused_by_name(void **state) {
  (void)state;
  static const char *const wrong[] = {
      "sm_8",    "sm_",     "sm",         "80",     "SM_80",        "sm_80b",
      "sm_80aa", "sm_80af", "sm_1000",    " sm_80", "sm_80 ",       "sm_-80",
      "sm_080",  "sm_9a",   "compute_80", "sm-80",  "sm_80\nsm_90", "sm_8000000000000000000a"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    struct target target;
    kjit_error error = {0};
    assert_status(KJIT_ERR_INVALID_ARG, target_parse(&target, wrong[i], &error), &error);
    assert_contains(error.message, "arch: ");
    assert_int_equal(0, target.capability);
    assert_string_equal("", target.name);
  }
}

static void test_target__missing_name_is_refused(void **state) {
  (void)state;
  struct target target;
  kjit_error error = {0};
  assert_status(KJIT_ERR_INVALID_ARG, target_parse(&target, NULL, &error), &error);
  assert_contains(error.message, "missing");
  assert_status(KJIT_ERR_INVALID_ARG, target_parse(&target, "", NULL), NULL);
}

static const struct target_limits *limits_of(const char *name) {
  struct target target;
  assert_int_equal(KJIT_OK, target_parse(&target, name, NULL));
  return target_get_limits(&target);
}

static void test_target__limits_are_those_of_the_programming_guide(void **state) {
  (void)state;
  assert_int_equal(163 * 1024, limits_of("sm_80")->shared_per_block);
  assert_int_equal(164 * 1024, limits_of("sm_80")->shared_per_sm);
  assert_int_equal(99 * 1024, limits_of("sm_86")->shared_per_block);
  assert_int_equal(16, limits_of("sm_86")->blocks_per_sm);
  assert_int_equal(24, limits_of("sm_89")->blocks_per_sm);
  assert_int_equal(227 * 1024, limits_of("sm_90a")->shared_per_block);
  assert_int_equal(2048, limits_of("sm_90a")->threads_per_sm);
  assert_int_equal(1536, limits_of("sm_120")->threads_per_sm);
}

static void test_target__a_block_has_at_most_what_its_multiprocessor_has(void **state) {
  (void)state;
  for (uint32_t capability = 10; capability < 1000; capability++) {
    const struct target target = {.capability = capability};
    const struct target_limits *limits = target_get_limits(&target);
    if (!limits) continue;
    assert_true(limits->shared_per_block <= limits->shared_per_sm);
    assert_int_equal(65536, limits->registers_per_sm);
    assert_int_equal(0, limits->threads_per_sm % 32);
  }
}

static void test_target__unknown_capability_has_no_limits(void **state) {
  (void)state;
  assert_null(limits_of("sm_999"));
}

static bool runs(const char *name, uint32_t device) {
  struct target target;
  assert_int_equal(KJIT_OK, target_parse(&target, name, NULL));
  return target_runs_on(&target, device);
}

static void test_target__plain_code_runs_on_later_minors_of_its_major(void **state) {
  (void)state;
  assert_true(runs("sm_80", 80));
  assert_true(runs("sm_80", 86));
  assert_false(runs("sm_86", 80));
  assert_false(runs("sm_80", 90));
  assert_false(runs("sm_90", 80));
  assert_false(runs("sm_90", 100));
}

static void test_target__arch_specific_code_runs_on_its_capability_alone(void **state) {
  (void)state;
  assert_true(runs("sm_90a", 90));
  assert_true(runs("sm_100a", 100));
  assert_false(runs("sm_100a", 103));
}

static void test_target__family_specific_code_runs_on_later_minors(void **state) {
  (void)state;
  assert_true(runs("sm_100f", 103));
  assert_false(runs("sm_103f", 100));
  assert_false(runs("sm_100f", 120));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_target__names_are_read),
      cmocka_unit_test(test_target__everything_else_is_refused_by_name),
      cmocka_unit_test(test_target__missing_name_is_refused),
      cmocka_unit_test(test_target__limits_are_those_of_the_programming_guide),
      cmocka_unit_test(test_target__a_block_has_at_most_what_its_multiprocessor_has),
      cmocka_unit_test(test_target__unknown_capability_has_no_limits),
      cmocka_unit_test(test_target__plain_code_runs_on_later_minors_of_its_major),
      cmocka_unit_test(test_target__arch_specific_code_runs_on_its_capability_alone),
      cmocka_unit_test(test_target__family_specific_code_runs_on_later_minors),
  };
  return cmocka_run_group_tests_name("target", tests, NULL, NULL);
}
