/* Blocks of a variant that the caller keeps (kjit_kept_blocks), and the order of a list's tiles, over a fake driver and
 * compiler: when kernels that find blocks are launched, and where they write. */
#include <kjit/attention_variant.h>

#include "unit/attention/variant_fixture.h"

static const char *const listed_entries[] = {"attention_block_list", "attention_sm90", NULL};

/* The arguments of a call whose blocks are found by a kernel, and kept. */
static kjit_attention_args kept_args(struct fixture *f, kjit_attention_variant **variant, int32_t *value,
                                     kjit_kept_blocks *kept) {
  const kjit_variant_scalar scalar = {"n", KJIT_VARIANT_INT32};
  const kjit_attention_variant_text text = {
      .struct_size = sizeof text, .mask = "q * 7 % 13 == k % 3 + n", .scalars = &scalar, .scalar_count = 1};
  kjit_attention_args args = causal_args();
  fake_nvrtc.entries = listed_entries;
  assert_status(KJIT_OK, kjit_attention_variant_create(variant, &text, &f->error), &f->error);
  args.variant = *variant;
  args.scalar_values = value;
  args.kept = kept;
  return args;
}

/* How many kernels a call launches. */
static int launches_of(struct fixture *f, const kjit_attention_args *args) {
  const int before = fake_driver_calls_of(FAKE_LaunchKernel) + fake_driver_calls_of(FAKE_LaunchKernelEx);
  forward(f, args, NULL);
  return fake_driver_calls_of(FAKE_LaunchKernel) + fake_driver_calls_of(FAKE_LaunchKernelEx) - before;
}

static void test_kept_blocks__are_found_once(void **state) {
  struct fixture *f = *state;
  kjit_attention_variant *variant;
  kjit_kept_blocks kept = {0};
  int32_t value = 0;
  const kjit_attention_args args = kept_args(f, &variant, &value, &kept);
  assert_int_equal(2, launches_of(f, &args)); /* no memory yet */
  assert_true(kept.wanted > 0);
  assert_int_equal(0, kept.filled_for[0]);
  kept.data = address(7);
  kept.bytes = kept.wanted;
  assert_int_equal(2, launches_of(f, &args));
  const struct attention_block_lists filled = launched_variant()->variant.lists;
  assert_ptr_equal(address(7), filled.counts);
  assert_int_equal(1, launches_of(f, &args));
  assert_memory_equal(&filled, &launched_variant()->variant.lists, sizeof filled);
  assert_int_equal(0, fake_driver.launch.attribute_count); /* nothing in front to depend on */
  value = 1;
  assert_int_equal(2, launches_of(f, &args)); /* another number is another mask */
  assert_int_equal(1, launches_of(f, &args));
  kept.filled_for[0] = kept.filled_for[1] = 0;
  assert_int_equal(2, launches_of(f, &args));
  kjit_attention_variant_free(variant);
}

static void test_kept_blocks__are_those_of_one_memory_and_one_size(void **state) {
  struct fixture *f = *state;
  kjit_attention_variant *variant;
  kjit_kept_blocks kept = {.data = address(7), .bytes = 1 << 30};
  int32_t value = 0;
  kjit_attention_args args = kept_args(f, &variant, &value, &kept);
  assert_int_equal(2, launches_of(f, &args));
  assert_int_equal(1, launches_of(f, &args));
  kept.data = address(6);
  assert_int_equal(2, launches_of(f, &args));
  args.k.shape[1] = args.v.shape[1] = 600;
  assert_int_equal(2, launches_of(f, &args));
  assert_int_equal(1, launches_of(f, &args));
  kept.bytes = 16; /* too few: as without */
  assert_int_equal(2, launches_of(f, &args));
  assert_ptr_not_equal(address(6), launched_variant()->variant.lists.counts);
  kjit_attention_variant_free(variant);
}

/* A graph may run when the memory holds something else, or is gone. */
static void test_kept_blocks__are_left_alone_by_a_capture(void **state) {
  struct fixture *f = *state;
  kjit_attention_variant *variant;
  kjit_kept_blocks kept = {.data = address(7), .bytes = 1 << 30};
  int32_t value = 0;
  const kjit_attention_args args = kept_args(f, &variant, &value, &kept);
  assert_int_equal(2, launches_of(f, &args));
  const kjit_kept_blocks before = kept;
  fake_driver.capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  assert_int_equal(2, launches_of(f, &args));
  assert_ptr_not_equal(address(7), launched_variant()->variant.lists.counts);
  assert_memory_equal(&before, &kept, sizeof kept);
  kjit_attention_variant_free(variant);
}

static void test_kept_blocks__that_could_not_be_found_are_not_kept(void **state) {
  struct fixture *f = *state;
  kjit_attention_variant *variant;
  kjit_kept_blocks kept = {.data = address(7), .bytes = 1 << 30};
  int32_t value = 0;
  const kjit_attention_args args = kept_args(f, &variant, &value, &kept);
  forward(f, &args, NULL);
  value = 1;
  fake_driver.fail_call = FAKE_LaunchKernel;
  fake_driver.failure = CUDA_ERROR_LAUNCH_FAILED;
  assert_int_not_equal(KJIT_OK, kjit_attention_forward(f->runtime, NULL, &args, NULL, &f->error));
  fake_driver.fail_call = FAKE_CALLS;
  value = 0;
  assert_int_equal(2, launches_of(f, &args));
  kjit_attention_variant_free(variant);
}

/* Where tiles are many, lists that are kept have an order of them; for one call it would not pay. */
static void test_kept_blocks__have_an_order_where_tiles_are_many(void **state) {
  struct fixture *f = *state;
  kjit_attention_variant *variant;
  kjit_kept_blocks kept = {.data = address(7), .bytes = 1 << 30};
  int32_t value = 0;
  kjit_attention_args args = kept_args(f, &variant, &value, &kept);
  forward(f, &args, NULL);
  const struct attention_block_lists ordered = launched_variant()->variant.lists;
  assert_non_null(ordered.order);
  assert_non_null(ordered.ahead);
  assert_null(ordered.made);
  args.kept = NULL;
  forward(f, &args, NULL);
  assert_non_null(launched_variant()->variant.lists.counts);
  assert_null(launched_variant()->variant.lists.order);
  args.kept = &kept;
  args.q.shape[0] = args.k.shape[0] = args.v.shape[0] = args.o.shape[0] = 1;
  args.q.shape[1] = args.o.shape[1] = 128;
  forward(f, &args, NULL);
  assert_non_null(launched_variant()->variant.lists.counts);
  assert_null(launched_variant()->variant.lists.order);
  kjit_attention_variant_free(variant);
}

static void test_kept_blocks__memory_is_checked(void **state) {
  struct fixture *f = *state;
  kjit_kept_blocks kept = {.bytes = 1 << 20};
  kjit_attention_args args = causal_args();
  args.attention_chunk = 64;
  args.kept = &kept;
  assert_status(KJIT_ERR_INVALID_ARG, kjit_attention_forward(f->runtime, NULL, &args, NULL, &f->error), &f->error);
  assert_contains(f->error.message, "args.kept.data: must not be NULL");
  kept.data = (char *)address(7) + 8;
  assert_status(KJIT_ERR_INVALID_ARG, kjit_attention_forward(f->runtime, NULL, &args, NULL, &f->error), &f->error);
  assert_contains(f->error.message, "args.kept.data: must be a multiple of 16");
  kept.data = address(7);
  forward(f, &args, NULL);
  assert_int_equal(0, kept.wanted); /* row intervals */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      VARIANT_TEST(test_kept_blocks__are_found_once),
      VARIANT_TEST(test_kept_blocks__are_those_of_one_memory_and_one_size),
      VARIANT_TEST(test_kept_blocks__are_left_alone_by_a_capture),
      VARIANT_TEST(test_kept_blocks__that_could_not_be_found_are_not_kept),
      VARIANT_TEST(test_kept_blocks__have_an_order_where_tiles_are_many),
      VARIANT_TEST(test_kept_blocks__memory_is_checked),
  };
  return cmocka_run_group_tests_name("kept blocks", tests, NULL, NULL);
}
