#include "support/test.h"

#include <pthread.h>

#include "base/threads/push_table.h"
#include "support/failing_allocator.h"

/* Keys of 80 bytes, of which a number differs; values of 16. */
struct key {
  int32_t device;
  int32_t numbers[19];
};

struct value {
  uint32_t number, other;
  double aligned;
};

struct fixture {
  struct failing_allocator memory;
  struct mem mem;
  struct push_table table;
};

static int setup(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  *state = f;
  if (!f) return -1;
  failing_allocator_reset(&f->memory, FAIL_NEVER);
  const kjit_allocator hooks = failing_allocator_hooks(&f->memory);
  mem_init(&f->mem, &hooks);
  push_table_init(&f->table, &f->mem, sizeof(struct value));
  return 0;
}

static int teardown(void **state) {
  struct fixture *f = *state;
  push_table_finish(&f->table);
  const long live = atomic_load(&f->memory.live);
  free(f);
  return live ? -1 : 0;
}

static struct key key_of(int32_t number, int32_t device) {
  return (struct key){.device = device, .numbers = {1, 2, number}};
}

static const struct value *add(struct fixture *f, int32_t number, int32_t device) {
  const struct key key = key_of(number, device);
  const struct value value = {.number = (uint32_t)number, .other = 128, .aligned = 0.5};
  return push_table_add(&f->table, &key, sizeof key, &value);
}

static const struct value *find(struct fixture *f, int32_t number, int32_t device) {
  const struct key key = key_of(number, device);
  return push_table_find(&f->table, &key, sizeof key);
}

static void test_push_table__empty_table_has_nothing(void **state) {
  assert_null(find(*state, 64, 0));
}

static void test_push_table__what_was_added_is_found(void **state) {
  const struct value *added = add(*state, 64, 0);
  assert_non_null(added);
  assert_ptr_equal(find(*state, 64, 0), added);
  assert_int_equal(added->number, 64);
  assert_int_equal(added->other, 128);
  assert_true(added->aligned == 0.5);
}

static void test_push_table__other_device_is_another_entry(void **state) {
  assert_non_null(add(*state, 64, 0));
  assert_null(find(*state, 64, 1));
  assert_ptr_not_equal(add(*state, 64, 1), find(*state, 64, 0));
}

static void test_push_table__every_byte_counts(void **state) {
  struct fixture *f = *state;
  assert_non_null(add(f, 64, 0));
  for (size_t i = 0; i < sizeof(struct key); i++) {
    struct key other = key_of(64, 0);
    ((unsigned char *)&other)[i] ^= 1;
    assert_null(push_table_find(&f->table, &other, sizeof other));
  }
}

static void test_push_table__shorter_key_is_another(void **state) {
  struct fixture *f = *state;
  const struct key key = key_of(64, 0);
  assert_non_null(add(f, 64, 0));
  assert_null(push_table_find(&f->table, &key, sizeof key - 4));
}

static void test_push_table__second_add_returns_the_first(void **state) {
  const struct value *first = add(*state, 64, 0);
  assert_ptr_equal(add(*state, 64, 0), first);
}

static void test_push_table__ten_thousand_are_found(void **state) {
  for (int32_t i = 0; i < 10000; i++)
    assert_non_null(add(*state, i, 0));
  for (int32_t i = 0; i < 10000; i++)
    assert_int_equal(find(*state, i, 0)->number, i);
  assert_null(find(*state, 10000, 0));
}

static void test_push_table__entries_stay_where_they_are(void **state) {
  const struct value *first = add(*state, 0, 0);
  for (int32_t i = 1; i < 1000; i++)
    assert_non_null(add(*state, i, 0));
  assert_ptr_equal(find(*state, 0, 0), first);
}

static void test_push_table__allocation_failure_adds_nothing(void **state) {
  struct fixture *f = *state;
  atomic_store(&f->memory.calls, 0);
  atomic_store(&f->memory.fail_at, 0);
  assert_null(add(f, 64, 0));
  atomic_store(&f->memory.fail_at, FAIL_NEVER);
  assert_null(find(f, 64, 0));
  assert_non_null(add(f, 64, 0));
}

#define THREADS 8
#define NUMBERS 500

/* Each thread adds all numbers from a start of its own, and must find each with its own content ever after. */
static void *add_and_find(void *user) {
  static atomic_int next;
  struct fixture *f = user;
  const int32_t start = atomic_fetch_add(&next, 1) * 61;
  for (int32_t i = 0; i < NUMBERS; i++) {
    const int32_t number = (start + i) % NUMBERS;
    const struct value *added = add(f, number, 0), *found = find(f, number, 0);
    if (!added || added != found || found->number != (uint32_t)number) return "an entry is wrong";
  }
  return NULL;
}

static void test_push_table__threads_agree_on_one_entry_each(void **state) {
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, add_and_find, *state), 0);
  for (int i = 0; i < THREADS; i++) {
    void *wrong = NULL;
    assert_int_equal(pthread_join(threads[i], &wrong), 0);
    assert_null(wrong);
  }
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_push_table__empty_table_has_nothing),         TEST(test_push_table__what_was_added_is_found),
      TEST(test_push_table__other_device_is_another_entry),   TEST(test_push_table__every_byte_counts),
      TEST(test_push_table__shorter_key_is_another),          TEST(test_push_table__second_add_returns_the_first),
      TEST(test_push_table__ten_thousand_are_found),          TEST(test_push_table__entries_stay_where_they_are),
      TEST(test_push_table__allocation_failure_adds_nothing), TEST(test_push_table__threads_agree_on_one_entry_each),
  };
  return cmocka_run_group_tests_name("push_table", tests, NULL, NULL);
}
