#include "support/test.h"

#include <pthread.h>

#include "attention/flash/flash_resident.h"
#include "unit/attention/configs.h"

struct fixture {
  struct failing_allocator memory;
  struct mem mem;
  struct flash_resident *resident;
};

static int setup(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  *state = f;
  if (!f) return -1;
  failing_allocator_reset(&f->memory, FAIL_NEVER);
  const kjit_allocator hooks = failing_allocator_hooks(&f->memory);
  mem_init(&f->mem, &hooks);
  f->resident = flash_resident_create(&f->mem);
  return f->resident ? 0 : -1;
}

static int teardown(void **state) {
  struct fixture *f = *state;
  flash_resident_destroy(f->resident);
  const long live = atomic_load(&f->memory.live);
  free(f);
  return live ? -1 : 0;
}

/* A config of its own for each number; only the table sees it. */
static kjit_flash_variant numbered(int32_t number) {
  kjit_flash_config config = config_base();
  config.B_r = number;
  return kjit_flash_variant_plain(&config);
}

static struct flash_resident_kernel kernel_of(int32_t number) {
  return (struct flash_resident_kernel){.B_r = (uint32_t)number, .threads = 128, .shared_bytes = 49152};
}

static const struct flash_resident_kernel *add(struct fixture *f, int32_t number, int32_t device) {
  const kjit_flash_variant variant = numbered(number);
  const struct flash_resident_kernel kernel = kernel_of(number);
  return flash_resident_add(f->resident, &variant, device, &kernel);
}

static const struct flash_resident_kernel *find(struct fixture *f, int32_t number, int32_t device) {
  const kjit_flash_variant variant = numbered(number);
  return flash_resident_find(f->resident, &variant, device);
}

static void test_flash_resident__empty_table_has_nothing(void **state) {
  assert_null(find(*state, 64, 0));
}

static void test_flash_resident__what_was_added_is_found(void **state) {
  const struct flash_resident_kernel *added = add(*state, 64, 0);
  assert_non_null(added);
  assert_ptr_equal(find(*state, 64, 0), added);
  assert_int_equal(added->B_r, 64);
  assert_int_equal(added->threads, 128);
  assert_int_equal(added->shared_bytes, 49152);
}

static void test_flash_resident__other_device_is_another_entry(void **state) {
  assert_non_null(add(*state, 64, 0));
  assert_null(find(*state, 64, 1));
  assert_ptr_not_equal(add(*state, 64, 1), find(*state, 64, 0));
}

static void test_flash_resident__every_field_counts(void **state) {
  struct fixture *f = *state;
  assert_non_null(add(f, 64, 0));
  for (size_t i = 0; i < sizeof(kjit_flash_variant) / sizeof(int32_t); i++) {
    kjit_flash_variant other = numbered(64);
    int32_t value;
    memcpy(&value, (char *)&other + i * sizeof value, sizeof value);
    value++;
    memcpy((char *)&other + i * sizeof value, &value, sizeof value);
    assert_null(flash_resident_find(f->resident, &other, 0));
  }
}

static void test_flash_resident__second_add_returns_the_first(void **state) {
  const struct flash_resident_kernel *first = add(*state, 64, 0);
  assert_ptr_equal(add(*state, 64, 0), first);
}

static void test_flash_resident__ten_thousand_are_found(void **state) {
  for (int32_t i = 0; i < 10000; i++)
    assert_non_null(add(*state, i, 0));
  for (int32_t i = 0; i < 10000; i++)
    assert_int_equal(find(*state, i, 0)->B_r, i);
  assert_null(find(*state, 10000, 0));
}

static void test_flash_resident__entries_stay_where_they_are(void **state) {
  const struct flash_resident_kernel *first = add(*state, 0, 0);
  for (int32_t i = 1; i < 1000; i++)
    assert_non_null(add(*state, i, 0));
  assert_ptr_equal(find(*state, 0, 0), first);
}

static void test_flash_resident__allocation_failure_adds_nothing(void **state) {
  struct fixture *f = *state;
  long fail_at = 0;
  const struct flash_resident_kernel *added = NULL;
  /* uthash allocates with its first entry: the failing call moves on until everything is there. */
  while (!added) {
    atomic_store(&f->memory.calls, 0);
    atomic_store(&f->memory.fail_at, fail_at++);
    added = add(f, 64, 0);
    atomic_store(&f->memory.fail_at, FAIL_NEVER);
    assert_ptr_equal(find(f, 64, 0), added);
  }
  assert_true(fail_at > 2);
}

static void test_flash_resident_create__allocation_failure_gives_null(void **state) {
  struct fixture *f = *state;
  atomic_store(&f->memory.calls, 0);
  atomic_store(&f->memory.fail_at, 0);
  assert_null(flash_resident_create(&f->mem));
  atomic_store(&f->memory.fail_at, FAIL_NEVER);
  flash_resident_destroy(NULL);
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
    const struct flash_resident_kernel *added = add(f, number, 0), *found = find(f, number, 0);
    if (!added || added != found || found->B_r != (uint32_t)number) return "an entry is wrong";
  }
  return NULL;
}

static void test_flash_resident__threads_agree_on_one_entry_each(void **state) {
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
      TEST(test_flash_resident__empty_table_has_nothing),
      TEST(test_flash_resident__what_was_added_is_found),
      TEST(test_flash_resident__other_device_is_another_entry),
      TEST(test_flash_resident__every_field_counts),
      TEST(test_flash_resident__second_add_returns_the_first),
      TEST(test_flash_resident__ten_thousand_are_found),
      TEST(test_flash_resident__entries_stay_where_they_are),
      TEST(test_flash_resident__allocation_failure_adds_nothing),
      TEST(test_flash_resident_create__allocation_failure_gives_null),
      TEST(test_flash_resident__threads_agree_on_one_entry_each),
  };
  return cmocka_run_group_tests_name("flash_resident", tests, NULL, NULL);
}
