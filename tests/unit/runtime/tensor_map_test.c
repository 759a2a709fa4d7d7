/* Tensor maps by the public function: what reaches the driver, and each rule. */
#include "fixture.h"

#include <kjit/tensor_map.h>

/* 64 x 100 fp16, rows of 128 bytes. */
static kjit_tensor_map_options plain(void) {
  kjit_tensor_map_options options = kjit_tensor_map_options_default();
  options.address = 0x10000;
  options.rank = 2;
  options.dtype = KJIT_MAP_FP16;
  options.sizes[0] = 64, options.sizes[1] = 100;
  options.strides[0] = 128;
  options.box[0] = 64, options.box[1] = 32;
  options.swizzle = KJIT_MAP_SWIZZLE_128B;
  return options;
}

static void test_tensor_map__everything_reaches_the_driver(void **state) {
  struct fixture *f = *state;
  kjit_tensor_map map;
  kjit_tensor_map_options options = plain();
  options.element_strides[1] = 2;
  options.promotion = KJIT_MAP_PROMOTION_128B;
  options.nan_fill = 1;
  assert_status(KJIT_OK, kjit_tensor_map_create(f->runtime, &options, &map, &f->error), &f->error);
  assert_int_equal(0x10000, map.opaque[0]);
  assert_int_equal(64, map.opaque[1]);
  assert_int_equal(100, map.opaque[2]);
  assert_int_equal(128, map.opaque[6]);
  assert_int_equal(64, map.opaque[10]);
  assert_int_equal(32, map.opaque[11]);
  assert_int_equal(6 | 3 << 16 | 2 << 24 | (uint64_t)1 << 32, map.opaque[13]);
  assert_int_equal(2, map.opaque[14]);
  assert_int_equal(2, map.opaque[15]);
}

static void refused(struct fixture *f, const kjit_tensor_map_options *options, const char *what) {
  kjit_tensor_map map;
  assert_status(KJIT_ERR_INVALID_ARG, kjit_tensor_map_create(f->runtime, options, &map, &f->error), &f->error);
  assert_contains(f->error.message, what);
  assert_int_equal(0, fake_driver_calls_of(FAKE_TensorMapEncodeTiled));
}

#define REFUSED(change, what)                                                                                          \
  do {                                                                                                                 \
    kjit_tensor_map_options o = plain();                                                                               \
    change;                                                                                                            \
    refused(f, &o, what);                                                                                              \
  } while (0)

static void test_tensor_map__each_rule_is_a_sentence(void **state) {
  struct fixture *f = *state;
  REFUSED(o.rank = 0, "options.rank: 0; must be 1 to 5");
  REFUSED(o.rank = 6, "options.rank: 6");
  REFUSED(o.dtype = 16, "options.dtype: 16");
  REFUSED(o.interleave = 3, "options.interleave: 3");
  REFUSED(o.swizzle = 7, "options.swizzle: 7");
  REFUSED(o.promotion = 4, "options.promotion: 4");
  REFUSED(o.nan_fill = 2, "options.nan_fill: 2");
  REFUSED((o.nan_fill = 1, o.dtype = KJIT_MAP_UINT16), "only floating point types have a NaN");
  REFUSED(o.interleave = KJIT_MAP_INTERLEAVE_16B, "options.rank: 2; must be at least 3 with interleaving");
  REFUSED((o.rank = 3, o.interleave = KJIT_MAP_INTERLEAVE_32B), "must be KJIT_MAP_SWIZZLE_32B");
  REFUSED(o.address = 0, "options.address: 0; must not be NULL");
  REFUSED(o.address = 8, "options.address: 8; must be a multiple of 16");
  REFUSED(o.sizes[1] = 0, "options.sizes[1]: 0; must be 1 to 2^32");
  REFUSED(o.sizes[0] = ((uint64_t)1 << 32) + 1, "options.sizes[0]: 4294967297");
  REFUSED(o.strides[0] = 100, "options.strides[0]: 100; must be a multiple of 16");
  REFUSED(o.strides[0] = (uint64_t)1 << 40, "must be below 2^40 bytes");
  REFUSED(o.box[1] = 0, "options.box[1]: 0; must be 1 to 256");
  REFUSED(o.box[1] = 257, "options.box[1]: 257");
  REFUSED(o.element_strides[0] = 9, "options.element_strides[0]: 9; must be 1 to 8");
  REFUSED(o.box[0] = 4, "options.box[0]: 4; a row must have a multiple of 16 bytes");
  REFUSED(o.swizzle = KJIT_MAP_SWIZZLE_64B, "options.box[0]: 64; a row must not be wider than the swizzle");
}

static void test_tensor_map__every_type_rank_and_swizzle_is_taken(void **state) {
  struct fixture *f = *state;
  static const uint32_t bytes_of[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
  kjit_tensor_map map;
  for (uint32_t dtype = 0; dtype <= KJIT_MAP_TF32_FTZ; dtype++)
    for (uint32_t rank = 1; rank <= 5; rank++)
      for (uint32_t swizzle = 0; swizzle <= KJIT_MAP_SWIZZLE_128B; swizzle++) {
        kjit_tensor_map_options options = plain();
        options.dtype = dtype;
        options.rank = rank;
        options.swizzle = swizzle;
        for (uint32_t i = 0; i < rank; i++)
          options.sizes[i] = 64, options.box[i] = i ? 2 : 16 / bytes_of[dtype];
        for (uint32_t i = 0; i + 1 < rank; i++)
          options.strides[i] = 4096;
        assert_status(KJIT_OK, kjit_tensor_map_create(f->runtime, &options, &map, &f->error), &f->error);
      }
}

static void test_tensor_map__drivers_refusal_names_sizes_and_strides(void **state) {
  struct fixture *f = *state;
  kjit_tensor_map map;
  const kjit_tensor_map_options options = plain();
  fake_driver.fail_call = FAKE_TensorMapEncodeTiled;
  fake_driver.failure = CUDA_ERROR_INVALID_VALUE;
  assert_status(KJIT_ERR_UNSUPPORTED, kjit_tensor_map_create(f->runtime, &options, &map, &f->error), &f->error);
  assert_contains(f->error.message, "100 x 64 elements, strides 128 bytes");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(test_tensor_map__everything_reaches_the_driver),
      FIXTURE_TEST(test_tensor_map__each_rule_is_a_sentence),
      FIXTURE_TEST(test_tensor_map__every_type_rank_and_swizzle_is_taken),
      FIXTURE_TEST(test_tensor_map__drivers_refusal_names_sizes_and_strides),
  };
  return cmocka_run_group_tests_name("tensor_map", tests, NULL, NULL);
}
