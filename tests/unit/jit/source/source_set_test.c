#include "jit/source/source_set.h"

#include <pthread.h>
#include <stdbool.h>

#include "jit/source/directive_scan.h"
#include "jit/source/embedded_sources.h"
#include "support/test.h"

#define MAIN "flash_forward/flash_forward.cu"

static struct failing_allocator allocator;
static struct mem memory;
static struct source_shelf shelf;

static int open_shelf(void **state) {
  (void)state;
  failing_allocator_reset(&allocator, FAIL_NEVER);
  const kjit_allocator hooks = failing_allocator_hooks(&allocator);
  source_shelf_init(&shelf, &memory);
  return mem_init(&memory, &hooks) ? 0 : -1;
}

/* Nothing may be left over. */
static int close_shelf(void **state) {
  (void)state;
  source_shelf_finish(&shelf);
  return atomic_load(&allocator.live) ? -1 : 0;
}

static const struct source_set *embedded(void) {
  const struct source_set *set = NULL;
  if (!embedded_source_count) skip(); /* built without them */
  assert_status(KJIT_OK, source_shelf_get(&shelf, MAIN, &set, NULL), NULL);
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

/* What a variant's request brings along: it is no file of the kernels. */
#define GENERATED "attention_variant.cuh"

static void look_up(const struct source_set *set, const struct source_file *file, const struct mem *mem) {
  struct directive_list list;
  struct arena arena;
  arena_init(&arena, mem, 16 << 20);
  assert_true(directive_scan(&list, file->text, file->bytes, &arena));
  for (size_t i = 0; i < list.count; i++) {
    const char *name;
    size_t bytes;
    bool angled;
    if (list.items[i].kind != DIRECTIVE_INCLUDE) continue;
    assert_true(directive_header(list.items[i].args, list.items[i].args_bytes, &name, &bytes, &angled));
    if (bytes == strlen(GENERATED) && !memcmp(name, GENERATED, bytes)) continue;
    assert_non_null(find(set, name, bytes));
  }
  arena_finish(&arena);
}

static void test_source_set__every_include_of_a_kernel_is_in_its_closure(void **state) {
  (void)state;
  const struct source_set *set = embedded();
  struct mem mem;
  assert_true(mem_init(&mem, NULL));
  for (size_t i = 0; i < set->count; i++)
    look_up(set, &set->files[i], &mem);
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

static void test_source_shelf__unknown_kernel_is_refused_by_name(void **state) {
  (void)state;
  const struct source_set *set;
  kjit_error error = {0};
  assert_status(KJIT_ERR_UNSUPPORTED, source_shelf_get(&shelf, "no/such_kernel.cu", &set, &error), &error);
  assert_contains(error.message, "no/such_kernel.cu");
  assert_null(set);
  assert_status(KJIT_ERR_UNSUPPORTED, source_shelf_get(&shelf, "", &set, NULL), NULL);
}

static void test_source_shelf__is_out_of_memory_by_name_and_leaves_nothing(void **state) {
  (void)state;
  const struct source_set *set;
  long fail_at = 0;
  for (kjit_status status = KJIT_ERR_NO_MEMORY; status != KJIT_OK; fail_at++) {
    failing_allocator_reset(&allocator, fail_at);
    kjit_error error = {0};
    status = source_shelf_get(&shelf, MAIN, &set, &error);
    if (status == KJIT_OK) break;
    assert_status(KJIT_ERR_NO_MEMORY, status, &error);
    assert_int_equal(0, atomic_load(&allocator.live));
  }
  assert_in_range(fail_at, 2, 100);
}

static void *ask(void *unused) {
  const struct source_set *set;
  (void)unused;
  return source_shelf_get(&shelf, MAIN, &set, NULL) == KJIT_OK ? (void *)(uintptr_t)set : NULL;
}

static void test_source_shelf__threads_get_the_same_set(void **state) {
  (void)state;
  pthread_t threads[8];
  for (int i = 0; i < 8; i++)
    assert_int_equal(0, pthread_create(&threads[i], NULL, ask, NULL));
  for (int i = 0; i < 8; i++) {
    void *set;
    pthread_join(threads[i], &set);
    assert_ptr_equal(embedded(), set);
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
  struct source_set set;
  struct source_file files[] = {{.name = "m.cu", .text = "m", .bytes = 1},
                                {.name = "z.h", .text = "z", .bytes = 1},
                                {.name = header_name, .text = header_text, .bytes = strlen(header_text)}};
  assert_true(source_set_seal(&set, files, 3, &memory));
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
  struct source_set set;
  struct source_file file = {.name = "m.cu", .text = "m", .bytes = 1};
  failing_allocator_reset(&allocator, 0);
  assert_false(source_set_seal(&set, &file, 1, &memory));
}

#define SHELF_TEST(test) cmocka_unit_test_setup_teardown(test, open_shelf, close_shelf)

int main(void) {
  const struct CMUnitTest tests[] = {
      SHELF_TEST(test_source_set__main_file_is_first_and_the_rest_sorted),
      SHELF_TEST(test_source_set__every_include_of_a_kernel_is_in_its_closure),
      SHELF_TEST(test_source_set__digests_are_those_of_the_texts),
      SHELF_TEST(test_source_shelf__unknown_kernel_is_refused_by_name),
      SHELF_TEST(test_source_shelf__is_out_of_memory_by_name_and_leaves_nothing),
      SHELF_TEST(test_source_shelf__threads_get_the_same_set),
      SHELF_TEST(test_source_set__names_are_relative),
      SHELF_TEST(test_source_set__digest_covers_names_and_texts),
      SHELF_TEST(test_source_set__seal_says_when_memory_is_out),
  };
  return cmocka_run_group_tests_name("source_set", tests, NULL, NULL);
}
