#include "base/threads/recent.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "support/test.h"

struct key {
  uint64_t number, same;
};
struct value {
  uint64_t words[5];
};

static struct mem mem;

static struct recent *create(size_t places) {
  assert_true(mem_init(&mem, NULL));
  struct recent *recent = recent_create(&mem, places, sizeof(struct key), sizeof(struct value));
  assert_non_null(recent);
  return recent;
}

static struct value value_of(uint64_t number) {
  return (struct value){{number, number * 3, number * 5, number * 7, number * 9}};
}

static void put(struct recent *recent, uint64_t number) {
  const struct key key = {number, 1};
  const struct value value = value_of(number);
  recent_put(recent, &key, &value);
}

static bool find(struct recent *recent, uint64_t number, struct value *value) {
  const struct key key = {number, 1};
  return recent_get(recent, &key, value);
}

static void expect_found(struct recent *recent, uint64_t number) {
  const struct value expected = value_of(number);
  struct value value = {0};
  assert_true(find(recent, number, &value));
  assert_memory_equal(&value, &expected, sizeof value);
}

static void test_recent__nothing_is_found_before_it_was_put(void **state) {
  (void)state;
  struct recent *recent = create(4);
  const struct key zeros = {0};
  struct value value;
  assert_false(find(recent, 7, &value));
  assert_false(recent_get(recent, &zeros, &value));
  recent_destroy(&mem, recent);
}

static void test_recent__what_was_put_is_found(void **state) {
  (void)state;
  struct recent *recent = create(64);
  struct value value;
  put(recent, 7);
  expect_found(recent, 7);
  assert_false(find(recent, 8, &value));
  recent_destroy(&mem, recent);
}

/* They differ behind what is hashed, so they share a slot. */
static void test_recent__long_keys_that_begin_alike_are_told_apart(void **state) {
  (void)state;
  uint64_t key[40] = {1}, value = 7, found = 0;
  assert_true(mem_init(&mem, NULL));
  struct recent *recent = recent_create(&mem, 64, sizeof key, sizeof value);
  assert_non_null(recent);
  recent_put(recent, key, &value);
  key[39] = 1;
  assert_false(recent_get(recent, key, &found));
  value = 8;
  recent_put(recent, key, &value);
  assert_true(recent_get(recent, key, &found));
  assert_int_equal(8, found);
  key[39] = 0;
  assert_false(recent_get(recent, key, &found));
  recent_destroy(&mem, recent);
}

static void test_recent__another_key_takes_the_place(void **state) {
  (void)state;
  struct recent *recent = create(1);
  struct value value;
  put(recent, 7);
  put(recent, 8);
  assert_false(find(recent, 7, &value));
  expect_found(recent, 8);
  recent_destroy(&mem, recent);
}

/* One place for all. */
struct crowd {
  struct recent *recent;
  uint64_t first;
  size_t mixtures;
};

static void *come_and_go(void *argument) {
  struct crowd *crowd = argument;
  for (uint64_t i = 0; i < 20000; i++) {
    const uint64_t number = crowd->first + i % 3;
    const struct value expected = value_of(number);
    struct value value;
    if (find(crowd->recent, number, &value))
      crowd->mixtures += memcmp(&value, &expected, sizeof value) != 0;
    else
      put(crowd->recent, number);
  }
  return NULL;
}

static void test_recent__threads_never_find_a_mixture(void **state) {
  (void)state;
  enum { THREADS = 4 };
  struct recent *recent = create(1);
  pthread_t threads[THREADS];
  struct crowd crowds[THREADS];
  for (size_t i = 0; i < THREADS; i++) {
    crowds[i] = (struct crowd){recent, i, 0};
    assert_int_equal(0, pthread_create(&threads[i], NULL, come_and_go, &crowds[i]));
  }
  for (size_t i = 0; i < THREADS; i++) {
    assert_int_equal(0, pthread_join(threads[i], NULL));
    assert_int_equal(0, crowds[i].mixtures);
  }
  recent_destroy(&mem, recent);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_recent__nothing_is_found_before_it_was_put),
      cmocka_unit_test(test_recent__what_was_put_is_found),
      cmocka_unit_test(test_recent__long_keys_that_begin_alike_are_told_apart),
      cmocka_unit_test(test_recent__another_key_takes_the_place),
      cmocka_unit_test(test_recent__threads_never_find_a_mixture),
  };
  return cmocka_run_group_tests_name("recent", tests, NULL, NULL);
}
