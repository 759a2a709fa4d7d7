#include "jit/key/key.h"

#include "jit/key/key_reader.h"
#include "support/cache_world.h"
#include <stdbool.h>

static struct mem mem;

static void make(struct key *key, const struct jit_request *request, const char *compiler) {
  assert_status(KJIT_OK, key_make(key, &mem, request, compiler, NULL), NULL);
}

/* Does this request have another key than the plain one? Its identity must say the same. */
static bool differs(const struct jit_request *request, const char *compiler) {
  struct cache_request plain;
  struct digest plain_identity, identity;
  struct key a, b;
  cache_request_make(&plain, 1);
  make(&a, &plain.request, "nvrtc-1");
  make(&b, request, compiler);
  key_identify(&plain_identity, &plain.request, "nvrtc-1");
  key_identify(&identity, request, compiler);
  const bool different = !digest_equal(&a.digest, &b.digest);
  assert_int_equal(different, !digest_equal(&plain_identity, &identity));
  assert_int_equal(different, a.text.bytes != b.text.bytes || memcmp(a.text.data, b.text.data, a.text.bytes));
  key_finish(&a);
  key_finish(&b);
  return different;
}

static void test_key__fixed_request_has_the_golden_text(void **state) {
  (void)state;
  struct cache_request made;
  struct key key;
  static const char *const options[] = {"--maxrregcount=128"};
  cache_request_make(&made, 7);
  made.request.options = options;
  made.request.option_count = 1;
  make(&key, &made.request, "nvrtc-0123");
  FILE *golden = fopen(KJIT_TEST_GOLDEN "/key-2.txt", "rb");
  assert_non_null(golden);
  char text[4096];
  const size_t bytes = fread(text, 1, sizeof text, golden);
  fclose(golden);
  assert_int_equal(bytes, key.text.bytes);
  assert_memory_equal(text, key.text.data, bytes);
  key_finish(&key);
}

static void test_key__equal_requests_are_equal(void **state) {
  (void)state;
  struct cache_request made;
  cache_request_make(&made, 1);
  assert_false(differs(&made.request, "nvrtc-1"));
}

static void test_key__label_and_flags_do_not_matter(void **state) {
  (void)state;
  struct cache_request made;
  cache_request_make(&made, 1);
  made.request.label = "another name";
  made.request.flags = KJIT_BUILD_NO_COMPILE;
  made.request.timeout_ms = 17;
  assert_false(differs(&made.request, "nvrtc-1"));
}

static void test_key__each_field_matters(void **state) {
  (void)state;
  static const char *const option[] = {"--maxrregcount=128"};
  struct cache_request made;
  cache_request_make(&made, 1);
  assert_true(differs(&made.request, "nvrtc-2"));
  assert_true(differs(&made.request, NULL));
  made.request.flags = KJIT_BUILD_KEEP_UNUSED;
  assert_true(differs(&made.request, "nvrtc-1"));
  made.request.flags = 0;
  strcpy(made.request.target.name, "sm_90");
  assert_true(differs(&made.request, "nvrtc-1"));
  cache_request_make(&made, 1);
  made.request.entry = "other";
  assert_true(differs(&made.request, "nvrtc-1"));
  cache_request_make(&made, 1);
  made.request.options = option;
  made.request.option_count = 1;
  assert_true(differs(&made.request, "nvrtc-1"));
  cache_request_make(&made, 2);
  assert_true(differs(&made.request, "nvrtc-1"));
  cache_request_make(&made, 1);
  made.file.name = "j.cu";
  cache_request_seal(&made);
  assert_true(differs(&made.request, "nvrtc-1"));
  cache_request_make(&made, 1);
  made.file.digest.bytes[31] ^= 1;
  cache_request_seal(&made);
  assert_true(differs(&made.request, "nvrtc-1"));
}

/* The same bytes divided in another way must not meet: that is what the lengths are for. */
static void test_key__options_do_not_run_together(void **state) {
  (void)state;
  static const char *const two[] = {"-a", "-b"}, *const one[] = {"-a\noption 2:-b"};
  struct cache_request left, right;
  struct key a, b;
  cache_request_make(&left, 1);
  cache_request_make(&right, 1);
  left.request.options = two;
  left.request.option_count = 2;
  right.request.options = one;
  right.request.option_count = 1;
  make(&a, &left.request, "nvrtc-1");
  make(&b, &right.request, "nvrtc-1");
  assert_false(digest_equal(&a.digest, &b.digest));
  key_finish(&a);
  key_finish(&b);
}

static void test_key__request_part_is_shared_by_all_compilers(void **state) {
  (void)state;
  struct cache_request made;
  struct key one, two, none;
  cache_request_make(&made, 1);
  make(&one, &made.request, "nvrtc-1");
  make(&two, &made.request, "nvrtc-2");
  make(&none, &made.request, NULL);
  assert_true(digest_equal(&one.request, &two.request));
  assert_true(digest_equal(&one.request, &none.digest));
  assert_int_equal(one.request_bytes, key_request_part(one.text.data, one.text.bytes));
  assert_int_equal(none.request_bytes, none.text.bytes);
  key_finish(&one);
  key_finish(&two);
  key_finish(&none);
}

static void test_key__made_keys_are_sound(void **state) {
  (void)state;
  struct cache_request made;
  struct key key;
  cache_request_make(&made, 1);
  make(&key, &made.request, "nvrtc-1");
  assert_true(key_is_sound(key.text.data, key.text.bytes));
  assert_false(key_is_sound(key.text.data, key.request_bytes));
  key_finish(&key);
}

/* Every proper prefix, and every single flipped bit of the structure, is not a key or another key. */
static void test_key_reader__truncation_at_every_length_is_unsound(void **state) {
  (void)state;
  struct cache_request made;
  struct key key;
  cache_request_make(&made, 1);
  make(&key, &made.request, "nvrtc-1");
  for (size_t bytes = 0; bytes < key.text.bytes; bytes++) {
    char *cut = malloc(bytes + 1);
    memcpy(cut, key.text.data, bytes);
    assert_false(key_is_sound(cut, bytes));
    free(cut);
  }
  key_finish(&key);
}

static void test_key_reader__malformed_fields_are_unsound(void **state) {
  (void)state;
  static const char *const bad[] = {
      "",
      "kjit-key 2\n",
      KEY_HEAD "target",
      KEY_HEAD "target 5",
      KEY_HEAD "target 5:sm_8\n",
      KEY_HEAD "target 05:sm_80\n",
      KEY_HEAD "target 99999999999999999999:sm_80\n",
      KEY_HEAD "target 18446744073709551615:sm_80\n",
      KEY_HEAD "TARGET 5:sm_80\n",
      KEY_HEAD "averylongtagname-indeed 5:sm_80\n",
      KEY_HEAD " 5:sm_80\n",
      KEY_HEAD "target -5:sm_80\n",
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_false(key_is_sound(bad[i], strlen(bad[i])));
}

/* A long key needs memory; a short one does not. */
static void test_key__failed_allocation_is_reported(void **state) {
  (void)state;
  static char prologue[10000];
  memset(prologue, '\n', sizeof prologue - 1);
  struct failing_allocator failing;
  struct cache_request made;
  struct key key;
  struct mem poor;
  cache_request_make(&made, 1);
  made.request.prologue = prologue;
  const kjit_allocator hooks = failing_allocator_hooks(&failing);
  mem_init(&poor, &hooks);
  for (long at = 0;; at++) {
    failing_allocator_reset(&failing, at);
    const kjit_status status = key_make(&key, &poor, &made.request, "nvrtc-1", NULL);
    key_finish(&key);
    assert_int_equal(0, atomic_load(&failing.live));
    if (status == KJIT_OK) {
      assert_true(at > 0);
      break;
    }
    assert_status(KJIT_ERR_NO_MEMORY, status, NULL);
  }
}

static void test_key__request_beyond_the_limit_is_refused(void **state) {
  (void)state;
  static char prologue[1 << 20];
  struct cache_request made;
  struct key key;
  kjit_error error = {0};
  memset(prologue, '\n', sizeof prologue - 1);
  cache_request_make(&made, 1);
  made.request.prologue = prologue;
  assert_status(KJIT_ERR_INVALID_ARG, key_make(&key, &mem, &made.request, "nvrtc-1", &error), &error);
  assert_contains(error.message, "1 MiB");
  key_finish(&key);
}

int main(void) {
  mem_init(&mem, NULL);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_key__fixed_request_has_the_golden_text),
      cmocka_unit_test(test_key__equal_requests_are_equal),
      cmocka_unit_test(test_key__label_and_flags_do_not_matter),
      cmocka_unit_test(test_key__each_field_matters),
      cmocka_unit_test(test_key__options_do_not_run_together),
      cmocka_unit_test(test_key__request_part_is_shared_by_all_compilers),
      cmocka_unit_test(test_key__made_keys_are_sound),
      cmocka_unit_test(test_key_reader__truncation_at_every_length_is_unsound),
      cmocka_unit_test(test_key_reader__malformed_fields_are_unsound),
      cmocka_unit_test(test_key__failed_allocation_is_reported),
      cmocka_unit_test(test_key__request_beyond_the_limit_is_refused),
  };
  return cmocka_run_group_tests_name("key", tests, NULL, NULL);
}
