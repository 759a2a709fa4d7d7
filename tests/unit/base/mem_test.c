#include "base/mem.h"
#include "support/test.h"

static struct failing_allocator allocator;

static struct mem counting_mem(long fail_at) {
  struct mem mem;
  failing_allocator_reset(&allocator, fail_at);
  const kjit_allocator hooks = failing_allocator_hooks(&allocator);
  assert_true(mem_init(&mem, &hooks));
  return mem;
}

static void test_mem__no_hooks_means_the_heap(void **state) {
  (void)state;
  struct mem mem;
  const kjit_allocator none = {0};
  assert_true(mem_init(&mem, NULL));
  assert_true(mem_init(&mem, &none));
  void *memory = mem_alloc(&mem, 10);
  assert_non_null(memory);
  mem_free(&mem, memory);
}

static void test_mem__half_a_pair_of_hooks_is_refused(void **state) {
  (void)state;
  struct mem mem;
  const kjit_allocator no_release = {.allocate = failing_allocate}, no_allocate = {.release = failing_release};
  assert_false(mem_init(&mem, &no_release));
  assert_false(mem_init(&mem, &no_allocate));
}

static void test_mem__allocations_are_zeroed(void **state) {
  (void)state;
  const struct mem mem = counting_mem(FAIL_NEVER);
  const char zeros[64] = {0};
  char *memory = mem_alloc(&mem, sizeof zeros);
  assert_memory_equal(memory, zeros, sizeof zeros);
  mem_free(&mem, memory);
  assert_int_equal(0, atomic_load(&allocator.live));
}

static void test_mem__zero_bytes_give_a_pointer(void **state) {
  (void)state;
  const struct mem mem = counting_mem(FAIL_NEVER);
  void *memory = mem_alloc_array(&mem, 0, 8);
  assert_non_null(memory);
  mem_free(&mem, memory);
}

static void test_mem__overflowing_array_is_refused_unasked(void **state) {
  (void)state;
  const struct mem mem = counting_mem(FAIL_NEVER);
  assert_null(mem_alloc_array(&mem, SIZE_MAX / 4, 8));
  assert_null(mem_duplicate(&mem, "", SIZE_MAX));
  assert_int_equal(0, atomic_load(&allocator.calls));
}

static void test_mem__failing_hook_gives_null(void **state) {
  (void)state;
  const struct mem mem = counting_mem(0);
  assert_null(mem_alloc(&mem, 1));
  assert_null(mem_duplicate(&mem, "a", 1));
  assert_null(mem_strdup(&mem, "a"));
}

static void test_mem__duplicate_ends_in_nul(void **state) {
  (void)state;
  const struct mem mem = counting_mem(FAIL_NEVER);
  char *copy = mem_duplicate(&mem, "abc", 2);
  assert_string_equal("ab", copy);
  mem_free(&mem, copy);
  copy = mem_duplicate(&mem, NULL, 0);
  assert_string_equal("", copy);
  mem_free(&mem, copy);
}

static void test_mem__grown_array_keeps_its_elements(void **state) {
  (void)state;
  const struct mem mem = counting_mem(FAIL_NEVER);
  size_t capacity = 0;
  int *numbers = NULL;
  for (size_t count = 0; count < 1000; count++) {
    numbers = mem_grow(&mem, numbers, count, &capacity, sizeof *numbers);
    assert_non_null(numbers);
    assert_true(count < capacity);
    assert_int_equal(0, numbers[count]); /* new elements are zero */
    numbers[count] = (int)count + 1;
  }
  for (size_t i = 0; i < 1000; i++)
    assert_int_equal(i + 1, numbers[i]);
  assert_int_equal(1, atomic_load(&allocator.live));
  mem_free(&mem, numbers);
}

static void test_mem__array_that_cannot_grow_stays(void **state) {
  (void)state;
  const struct mem mem = counting_mem(1);
  size_t capacity = 0;
  int *const numbers = mem_grow(&mem, NULL, 0, &capacity, sizeof *numbers);
  assert_non_null(numbers);
  const size_t before = capacity;
  numbers[0] = 7;
  assert_null(mem_grow(&mem, numbers, capacity, &capacity, sizeof *numbers));
  assert_int_equal(before, capacity);
  assert_int_equal(7, numbers[0]);
  mem_free(&mem, numbers);
}

static void test_mem__null_is_accepted(void **state) {
  (void)state;
  const struct mem mem = counting_mem(FAIL_NEVER);
  mem_free(&mem, NULL);
  assert_null(mem_strdup(&mem, NULL));
  assert_int_equal(0, atomic_load(&allocator.live));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_mem__no_hooks_means_the_heap),
      cmocka_unit_test(test_mem__half_a_pair_of_hooks_is_refused),
      cmocka_unit_test(test_mem__allocations_are_zeroed),
      cmocka_unit_test(test_mem__zero_bytes_give_a_pointer),
      cmocka_unit_test(test_mem__overflowing_array_is_refused_unasked),
      cmocka_unit_test(test_mem__failing_hook_gives_null),
      cmocka_unit_test(test_mem__duplicate_ends_in_nul),
      cmocka_unit_test(test_mem__grown_array_keeps_its_elements),
      cmocka_unit_test(test_mem__array_that_cannot_grow_stays),
      cmocka_unit_test(test_mem__null_is_accepted),
  };
  return cmocka_run_group_tests_name("mem", tests, NULL, NULL);
}
