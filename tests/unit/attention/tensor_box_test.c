/* How tensors are described for TMA: which of them L2 fetches with what lies beside their rows. */
#include "attention/tensor_box.h"
#include "support/test.h"

enum { BATCH = 3, SEQ = 100, HEADS = 5 };

/* (batch, seq, heads, columns) in memory, or with heads before positions; rows `padded` elements apart. */
static kjit_tensor tensor_of(int64_t columns, int64_t padded, bool heads_first) {
  const int64_t row = padded ? padded : columns;
  return (kjit_tensor){
      .data = (void *)0x1000,
      .rank = 4,
      .shape = {BATCH, SEQ, HEADS, columns},
      .stride = {SEQ * HEADS * row, heads_first ? row : HEADS * row, heads_first ? SEQ * row : row, 1}};
}

static kjit_map_promotion promotion_of(int64_t columns, int64_t padded, bool heads_first) {
  const kjit_tensor tensor = tensor_of(columns, padded, heads_first);
  return (kjit_map_promotion)tensor_box_describe(&tensor, 64, KJIT_MAP_PROMOTION_128B).promotion;
}

static void test_tensor_box__rows_of_whole_lines_are_fetched_with_what_is_beside_them(void **state) {
  (void)state;
  assert_int_equal(promotion_of(64, 0, false), KJIT_MAP_PROMOTION_128B);
  assert_int_equal(promotion_of(256, 0, true), KJIT_MAP_PROMOTION_128B);
}

static void test_tensor_box__rows_of_other_sizes_that_lie_apart_are_fetched_alone(void **state) {
  (void)state;
  assert_int_equal(promotion_of(80, 0, false), KJIT_MAP_PROMOTION_NONE);
  assert_int_equal(promotion_of(96, 128, false), KJIT_MAP_PROMOTION_NONE);
  assert_int_equal(promotion_of(64, 72, false), KJIT_MAP_PROMOTION_NONE);
}

static void test_tensor_box__rows_side_by_side_are_fetched_with_the_next(void **state) {
  (void)state;
  assert_int_equal(promotion_of(80, 0, true), KJIT_MAP_PROMOTION_128B);
}

static void test_tensor_box__rows_beside_those_of_other_heads_are_shared(void **state) {
  (void)state;
  const kjit_tensor beside = tensor_of(80, 0, false), padded = tensor_of(96, 128, false),
                    whole = tensor_of(64, 0, false);
  const kjit_map_promotion most = KJIT_MAP_PROMOTION_256B;
  assert_int_equal(tensor_box_shared_promotion(&beside, most), KJIT_MAP_PROMOTION_128B);
  assert_int_equal(tensor_box_shared_promotion(&padded, most), KJIT_MAP_PROMOTION_NONE);
  assert_int_equal(tensor_box_shared_promotion(&whole, most), KJIT_MAP_PROMOTION_256B);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tensor_box__rows_of_whole_lines_are_fetched_with_what_is_beside_them),
      cmocka_unit_test(test_tensor_box__rows_of_other_sizes_that_lie_apart_are_fetched_alone),
      cmocka_unit_test(test_tensor_box__rows_beside_those_of_other_heads_are_shared),
      cmocka_unit_test(test_tensor_box__rows_side_by_side_are_fetched_with_the_next),
  };
  return cmocka_run_group_tests_name("tensor_box", tests, NULL, NULL);
}
