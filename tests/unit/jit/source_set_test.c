#include "jit/source_set.h"

#include <pthread.h>

#include "jit/embedded_sources.h"
#include "jit/include_scan.h"
#include "support/test.h"

#define MAIN "flash_forward/flash_forward.cu"

static const struct source_set *embedded(void) {
  const struct source_set *set = source_set_embedded(MAIN);
  if (!embedded_source_count) skip(); /* built without them */
  assert_non_null(set);
  return set;
}

static const struct source_file *find(const struct source_set *set, const char *name, size_t bytes) {
  for (size_t i = 0; i < set->count; i++) {
    if (strlen(set->files[i].name) == bytes && !memcmp(set->files[i].name, name, bytes)) return &set->files[i];
  }
  return NULL;
}

static void test_source_set__main_file_is_first_and_the_rest_sorted(void **state) {
  (void)state;
  const struct source_set *set = embedded();
  assert_string_equal(MAIN, set->files[0].name);
  assert_true(set->count > 1);
  for (size_t i = 2; i < set->count; i++)
    assert_true(strcmp(set->files[i - 1].name, set->files[i].name) < 0);
}

static kjit_status look_up(void *user, const struct include *include) {
  assert_non_null(find(user, include->name, include->name_bytes));
  return KJIT_OK;
}

static void test_source_set__every_include_of_a_kernel_is_in_its_closure(void **state) {
  (void)state;
  struct source_set set = *embedded();
  for (size_t i = 0; i < set.count; i++)
    assert_int_equal(KJIT_OK, include_scan(set.files[i].text, set.files[i].bytes, look_up, &set));
}

static void test_source_set__digests_are_those_of_the_texts(void **state) {
  (void)state;
  const struct source_set *set = embedded();
  for (size_t i = 0; i < set->count; i++) {
    struct digest digest;
    assert_int_equal(strlen(set->files[i].text), set->files[i].bytes);
    digest_of(&digest, set->files[i].text, set->files[i].bytes);
    assert_true(digest_equal(&digest, &set->files[i].digest));
  }
}

static void test_source_set__unknown_kernel_is_null(void **state) {
  (void)state;
  assert_null(source_set_embedded("no/such_kernel.cu"));
  assert_null(source_set_embedded(""));
}

static void *ask(void *unused) {
  (void)unused;
  return (void *)(uintptr_t)source_set_embedded(MAIN);
}

static void test_source_set__threads_get_the_same_set(void **state) {
  (void)state;
  pthread_t threads[8];
  for (int i = 0; i < 8; i++)
    assert_int_equal(0, pthread_create(&threads[i], NULL, ask, NULL));
  for (int i = 0; i < 8; i++) {
    void *set;
    pthread_join(threads[i], &set);
    assert_ptr_equal(source_set_embedded(MAIN), set);
  }
}

static void test_source_set__names_are_relative(void **state) {
  (void)state;
  const struct source_set *set = embedded();
  for (size_t i = 0; i < set->count; i++) {
    assert_int_not_equal('/', set->files[i].name[0]);
    assert_lacks(set->files[i].name, "..");
  }
}

static struct digest seal(const char *header_name, const char *header_text) {
  struct mem mem;
  struct source_set set;
  struct source_file files[] = {{.name = "m.cu", .text = "m", .bytes = 1},
                                {.name = "z.h", .text = "z", .bytes = 1},
                                {.name = header_name, .text = header_text, .bytes = strlen(header_text)}};
  assert_true(mem_init(&mem, NULL));
  assert_true(source_set_seal(&set, files, 3, &mem));
  assert_string_equal("m.cu", set.files[0].name);
  return set.digest;
}

static void test_source_set__digest_covers_names_and_texts(void **state) {
  (void)state;
  const struct digest base = seal("a.h", "1"), same = seal("a.h", "1"), renamed = seal("b.h", "1"),
                      changed = seal("a.h", "2");
  assert_true(digest_equal(&base, &same));
  assert_false(digest_equal(&base, &renamed));
  assert_false(digest_equal(&base, &changed));
}

static void test_source_set__seal_says_when_memory_is_out(void **state) {
  (void)state;
  static struct failing_allocator allocator;
  struct mem mem;
  struct source_set set;
  struct source_file file = {.name = "m.cu", .text = "m", .bytes = 1};
  failing_allocator_reset(&allocator, 0);
  const kjit_allocator hooks = failing_allocator_hooks(&allocator);
  assert_true(mem_init(&mem, &hooks));
  assert_false(source_set_seal(&set, &file, 1, &mem));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_source_set__threads_get_the_same_set),
      cmocka_unit_test(test_source_set__main_file_is_first_and_the_rest_sorted),
      cmocka_unit_test(test_source_set__every_include_of_a_kernel_is_in_its_closure),
      cmocka_unit_test(test_source_set__digests_are_those_of_the_texts),
      cmocka_unit_test(test_source_set__unknown_kernel_is_null),
      cmocka_unit_test(test_source_set__names_are_relative),
      cmocka_unit_test(test_source_set__digest_covers_names_and_texts),
      cmocka_unit_test(test_source_set__seal_says_when_memory_is_out),
  };
  return cmocka_run_group_tests_name("source_set", tests, NULL, NULL);
}
