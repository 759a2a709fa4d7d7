/* Calls with a variant, sinks or lists of blocks that kjit_attention_forward() refuses before anything is compiled or
 * launched, and what it says. */
#include <kjit/attention_variant.h>
#include <math.h>

#include "unit/attention/variant_fixture.h"

static void refuse(struct fixture *f, const kjit_attention_args *args, const char *why) {
  assert_status(KJIT_ERR_INVALID_ARG, kjit_attention_forward(f->runtime, NULL, args, NULL, &f->error), &f->error);
  assert_contains(f->error.message, why);
}

static void test_attention_variant__numbers_out_of_range_are_refused(void **state) {
  struct fixture *f = *state;
  kjit_attention_args args = windowed_args(-2);
  refuse(f, &args, "window_left is -2");
  args = causal_args();
  args.attention_chunk = -1;
  refuse(f, &args, "attention_chunk is -1");
  args = causal_args();
  args.softcap = NAN;
  refuse(f, &args, "softcap is");
}

static void test_attention_variant__plain_members_beside_a_text_are_refused(void **state) {
  struct fixture *f = *state;
  const kjit_attention_variant_text text = {.struct_size = sizeof text, .mask = "q >= k"};
  kjit_attention_variant *variant = NULL;
  kjit_attention_args args = windowed_args(64);
  assert_status(KJIT_OK, kjit_attention_variant_create(&variant, &text, &f->error), &f->error);
  args.variant = variant;
  refuse(f, &args, "args.variant");
  kjit_attention_variant_free(variant);
}

static void test_attention_variant__tensors_of_a_variant_are_checked(void **state) {
  struct fixture *f = *state;
  const kjit_variant_tensor declared = {"doc", KJIT_INT32, 1};
  const kjit_attention_variant_text text = {
      .struct_size = sizeof text, .mask = "doc[q] == doc[k]", .tensors = &declared, .tensor_count = 1};
  kjit_attention_variant *variant = NULL;
  kjit_attention_args args = causal_args();
  assert_status(KJIT_OK, kjit_attention_variant_create(&variant, &text, &f->error), &f->error);
  args.variant = variant;
  refuse(f, &args, "tensors: must not be NULL");
  kjit_tensor doc = vector(KJIT_INT32, 1, 1000, 0, 0, 0);
  args.variant_tensors = &doc;
  doc.device = 1;
  refuse(f, &args, "doc: is on device 1, and device 0 reads it");
  doc.device = 0;
  doc.dtype = KJIT_FP16;
  refuse(f, &args, "doc: its dtype is 5, and the variant was made for 3");
  doc = vector(KJIT_INT32, 2, 10, 100, 0, 0);
  refuse(f, &args, "doc: has 2 axes, and the variant was made for 1");
  kjit_attention_variant_free(variant);
}

static void test_attention_variant__sinks_are_checked(void **state) {
  struct fixture *f = *state;
  kjit_attention_args args = causal_args();
  kjit_tensor sinks = vector(KJIT_BF16, 1, 6, 0, 0, 0);
  args.sinks = &sinks;
  refuse(f, &args, "sinks.dtype");
  sinks = vector(KJIT_FP32, 1, 5, 0, 0, 0);
  refuse(f, &args, "sinks.shape[0] (heads) is 5");
  sinks = vector(KJIT_FP32, 1, 6, 0, 0, 0);
  forward(f, &args, NULL);
  assert_ptr_equal(launched_variant()->variant.sinks, address(9));
}

static void test_attention_variant__blocks_that_do_not_cover_are_refused(void **state) {
  struct fixture *f = *state;
  kjit_attention_args args = causal_args();
  kjit_block_lists blocks = {.counts = vector(KJIT_INT32, 3, 1, 1, 8, 0),
                             .indices = vector(KJIT_INT32, 4, 1, 1, 8, 5),
                             .query_rows = 128,
                             .key_rows = 128};
  args.blocks = &blocks;
  refuse(f, &args, "must be at least 6, to cover 700");
  blocks.indices = vector(KJIT_INT32, 4, 1, 2, 8, 6);
  refuse(f, &args, "blocks.indices.shape[1] (heads) is 2");
  blocks.indices = vector(KJIT_INT32, 4, 1, 1, 8, 6);
  blocks.query_rows = 0;
  refuse(f, &args, "blocks.query_rows is 0");
}

/* Lists that are expanded along an axis take no memory, whatever its length; their map does. */
static void test_attention_variant__blocks_of_more_states_than_memory_are_refused(void **state) {
  struct fixture *f = *state;
  kjit_attention_args args = causal_args();
  const int64_t many = INT64_C(1) << 31;
  kjit_block_lists blocks = {.counts = vector(KJIT_INT32, 3, 1, 6, many, 0),
                             .indices = vector(KJIT_INT32, 4, 1, 6, many, 6),
                             .query_rows = 128,
                             .key_rows = 128};
  args.blocks = &blocks;
  refuse(f, &args, "blocks.indices has 1 x 6 x 2147483648 x 6 blocks: must be at most 2^31 - 1 along an axis");
  blocks.counts = vector(KJIT_INT32, 3, 1, 6, many - 1, 0);
  blocks.indices = vector(KJIT_INT32, 4, 1, 6, many - 1, many - 1);
  blocks.indices.stride[1] = blocks.indices.stride[2] = 0;
  refuse(f, &args, "and 2^40 together");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      VARIANT_TEST(test_attention_variant__numbers_out_of_range_are_refused),
      VARIANT_TEST(test_attention_variant__plain_members_beside_a_text_are_refused),
      VARIANT_TEST(test_attention_variant__tensors_of_a_variant_are_checked),
      VARIANT_TEST(test_attention_variant__sinks_are_checked),
      VARIANT_TEST(test_attention_variant__blocks_that_do_not_cover_are_refused),
      VARIANT_TEST(test_attention_variant__blocks_of_more_states_than_memory_are_refused),
  };
  return cmocka_run_group_tests_name("variants that are refused", tests, NULL, NULL);
}
