#include "base/text.h"
#include "support/test.h"

static struct failing_allocator allocator;
static struct mem mem;

static int start(void **state) {
  (void)state;
  failing_allocator_reset(&allocator, FAIL_NEVER);
  const kjit_allocator hooks = failing_allocator_hooks(&allocator);
  return mem_init(&mem, &hooks) ? 0 : -1;
}

static int no_leaks(void **state) {
  (void)state;
  return atomic_load(&allocator.live) == 0 ? 0 : -1;
}

static void test_text__appends_in_order(void **state) {
  (void)state;
  struct text text;
  text_init(&text, &mem, 1000);
  text_append(&text, "a=");
  text_appendf(&text, "%d,%s", 7, "x");
  text_append_bytes(&text, "\0z", 2);
  assert_int_equal(7, text.bytes);
  assert_memory_equal("a=7,x\0z", text.data, 8);
  text_finish(&text);
}

static void test_text__grows_past_its_first_buffer(void **state) {
  (void)state;
  struct text text;
  text_init(&text, &mem, 100000);
  for (int i = 0; i < 10000; i++)
    text_append(&text, "0123456789");
  assert_false(text.failed);
  assert_int_equal(100000, text.bytes);
  assert_int_equal('9', text.data[99999]);
  assert_int_equal('\0', text.data[100000]);
  text_finish(&text);
}

static void test_text__formats_what_is_longer_than_the_buffer(void **state) {
  (void)state;
  struct text text;
  text_init(&text, &mem, 1000);
  text_appendf(&text, "%0500d", 1);
  assert_int_equal(500, text.bytes);
  assert_int_equal('1', text.data[499]);
  text_finish(&text);
}

static void test_text__the_limit_is_the_last_size_allowed(void **state) {
  (void)state;
  struct text text;
  text_init(&text, &mem, 4);
  text_append(&text, "abcd");
  assert_false(text.failed);
  text_append(&text, "e");
  assert_true(text.failed);
  assert_string_equal("abcd", text.data);
  text_finish(&text);
}

static void test_text__failure_sticks(void **state) {
  (void)state;
  struct text text;
  text_init(&text, &mem, 4);
  text_append(&text, "abcdef");
  text_append(&text, "a");
  text_appendf(&text, "%d", 1);
  assert_true(text.failed);
  assert_null(text_take(&text));
  text_finish(&text);
}

static void test_text__out_of_memory_is_a_failure(void **state) {
  (void)state;
  struct text text;
  text_init(&text, &mem, 1000);
  text_append(&text, "kept");
  atomic_store(&allocator.fail_at, 0);
  text_appendf(&text, "%0500d", 1);
  assert_true(text.failed);
  assert_string_equal("kept", text.data);
  text_finish(&text);
}

static void test_text__take_hands_the_buffer_over(void **state) {
  (void)state;
  struct text text;
  text_init(&text, &mem, 1000);
  text_append(&text, "mine");
  char *taken = text_take(&text);
  text_finish(&text);
  assert_string_equal("mine", taken);
  mem_free(&mem, taken);
}

static void test_text__take_of_nothing_is_an_empty_string(void **state) {
  (void)state;
  struct text text;
  text_init(&text, &mem, 1000);
  char *taken = text_take(&text);
  assert_string_equal("", taken);
  mem_free(&mem, taken);
  text_finish(&text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_text__appends_in_order, start, no_leaks),
      cmocka_unit_test_setup_teardown(test_text__grows_past_its_first_buffer, start, no_leaks),
      cmocka_unit_test_setup_teardown(test_text__formats_what_is_longer_than_the_buffer, start, no_leaks),
      cmocka_unit_test_setup_teardown(test_text__the_limit_is_the_last_size_allowed, start, no_leaks),
      cmocka_unit_test_setup_teardown(test_text__failure_sticks, start, no_leaks),
      cmocka_unit_test_setup_teardown(test_text__out_of_memory_is_a_failure, start, no_leaks),
      cmocka_unit_test_setup_teardown(test_text__take_hands_the_buffer_over, start, no_leaks),
      cmocka_unit_test_setup_teardown(test_text__take_of_nothing_is_an_empty_string, start, no_leaks),
  };
  return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
