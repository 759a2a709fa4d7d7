#include "base/nearest.h"

#include "support/test.h"

#include <string.h>

static const char *const names[] = {"threads", "warps", "BM", "BN", "default"};

static const char *nearest_to(const char *word) {
  struct nearest nearest;
  nearest_begin(&nearest, word, strlen(word));
  nearest_offer_all(&nearest, names, 5);
  return nearest.best;
}

static void test_nearest__one_letter_off_is_found(void **state) {
  (void)state;
  assert_string_equal(nearest_to("thread"), "threads");
  assert_string_equal(nearest_to("wraps"), "warps");
  assert_string_equal(nearest_to("THREADS"), "threads");
  assert_string_equal(nearest_to("defualt"), "default");
}

static void test_nearest__two_letters_off_are_found_in_long_names(void **state) {
  (void)state;
  assert_string_equal(nearest_to("treads_"), "threads");
}

static void test_nearest__what_is_far_is_not_suggested(void **state) {
  (void)state;
  assert_null(nearest_to("registers"));
  assert_null(nearest_to("XY"));
  assert_null(nearest_to(""));
}

static void test_nearest__of_equal_distance_the_first_stays(void **state) {
  (void)state;
  assert_string_equal(nearest_to("BX"), "BM");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_nearest__one_letter_off_is_found),
      cmocka_unit_test(test_nearest__two_letters_off_are_found_in_long_names),
      cmocka_unit_test(test_nearest__what_is_far_is_not_suggested),
      cmocka_unit_test(test_nearest__of_equal_distance_the_first_stays),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
