#include "base/struct_intake.h"
#include "support/test.h"

struct first { /* as first released */
  size_t struct_size;
  uint32_t a, b;
};

struct known { /* as this library knows it */
  size_t struct_size;
  uint32_t a, b;
  uint64_t c;
};

struct newer { /* as a later header has it */
  size_t struct_size;
  uint32_t a, b;
  uint64_t c, d;
};

static kjit_status take(struct known *local, const void *given, kjit_error *error) {
  memset(local, 0xA5, sizeof *local);
  return struct_intake(local, sizeof *local, given, sizeof(struct first), "thing", error);
}

static void test_struct_intake__own_size_is_copied(void **state) {
  (void)state;
  struct known local;
  const struct known given = {sizeof given, 1, 2, 3};
  assert_status(KJIT_OK, take(&local, &given, NULL), NULL);
  assert_memory_equal(&given, &local, sizeof given);
}

static void test_struct_intake__every_size_between_oldest_and_own_defaults_the_rest(void **state) {
  (void)state;
  for (size_t bytes = sizeof(struct first); bytes < sizeof(struct known); bytes += 4) {
    struct known local;
    struct known given = {bytes, 1, 2, UINT64_MAX};
    assert_status(KJIT_OK, take(&local, &given, NULL), NULL);
    assert_int_equal(sizeof local, local.struct_size);
    assert_int_equal(2, local.b);
    const uint64_t kept = bytes > sizeof(struct first) ? UINT32_MAX : 0;
    assert_int_equal(kept, local.c);
  }
}

static void test_struct_intake__newer_struct_with_zero_tail_is_taken(void **state) {
  (void)state;
  struct known local;
  const struct newer given = {sizeof given, 1, 2, 3, 0};
  assert_status(KJIT_OK, take(&local, &given, NULL), NULL);
  assert_int_equal(3, local.c);
  assert_int_equal(sizeof local, local.struct_size);
}

static void test_struct_intake__newer_struct_with_unknown_field_is_unsupported(void **state) {
  (void)state;
  struct known local;
  kjit_error error = {0};
  const struct newer given = {sizeof given, 1, 2, 3, (uint64_t)1 << 63};
  assert_status(KJIT_ERR_UNSUPPORTED, take(&local, &given, &error), &error);
  assert_contains(error.message, "thing");
}

static void test_struct_intake__size_never_set_is_refused(void **state) {
  (void)state;
  struct known local;
  kjit_error error = {0};
  const struct known zero = {0}, small = {sizeof(struct first) - 1, 0, 0, 0}, wild = {SIZE_MAX, 0, 0, 0};
  assert_status(KJIT_ERR_INVALID_ARG, take(&local, &zero, &error), &error);
  assert_contains(error.message, "thing.struct_size");
  assert_status(KJIT_ERR_INVALID_ARG, take(&local, &small, NULL), NULL);
  assert_status(KJIT_ERR_INVALID_ARG, take(&local, &wild, NULL), NULL);
  assert_status(KJIT_ERR_INVALID_ARG, take(&local, NULL, NULL), NULL);
}

static void test_struct_fill__small_struct_gets_what_it_has_room_for(void **state) {
  (void)state;
  const struct known local = {sizeof local, 1, 2, 3};
  struct known given = {sizeof(struct first), 9, 9, 9};
  assert_status(KJIT_OK, struct_fill(&given, &local, sizeof local, "thing", NULL), NULL);
  assert_int_equal(sizeof(struct first), given.struct_size);
  assert_int_equal(2, given.b);
  assert_int_equal(9, given.c);
}

static void test_struct_fill__large_struct_gets_zeros_at_its_end(void **state) {
  (void)state;
  const struct known local = {sizeof local, 1, 2, 3};
  struct newer given = {sizeof given, 9, 9, 9, 9};
  assert_status(KJIT_OK, struct_fill(&given, &local, sizeof local, "thing", NULL), NULL);
  assert_int_equal(sizeof given, given.struct_size);
  assert_int_equal(3, given.c);
  assert_int_equal(0, given.d);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_struct_intake__own_size_is_copied),
      cmocka_unit_test(test_struct_intake__every_size_between_oldest_and_own_defaults_the_rest),
      cmocka_unit_test(test_struct_intake__newer_struct_with_zero_tail_is_taken),
      cmocka_unit_test(test_struct_intake__newer_struct_with_unknown_field_is_unsupported),
      cmocka_unit_test(test_struct_intake__size_never_set_is_refused),
      cmocka_unit_test(test_struct_fill__small_struct_gets_what_it_has_room_for),
      cmocka_unit_test(test_struct_fill__large_struct_gets_zeros_at_its_end),
  };
  return cmocka_run_group_tests_name("struct_intake", tests, NULL, NULL);
}
