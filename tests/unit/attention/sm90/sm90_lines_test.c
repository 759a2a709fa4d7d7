/* What L2 fetches for rows that are no whole lines, as it reaches the driver's tensor maps. */
#include "unit/attention/attention_fixture.h"

#include <stdbool.h>

static int setup_slow(void **state) {
  return setup_kernel(state, "attention_sm90", sizeof(struct attention_sm90_params), slow_memory);
}

/* How much L2 fetches at a time by the map of K of a launch with so many queries and columns. */
static unsigned promotion_of(struct fixture *f, int64_t queries, int64_t columns) {
  kjit_attention_args args = kjit_attention_args_default();
  kjit_attention_sm90_config config = sm90_base();
  args.q = kjit_tensor_bshd(address(1), KJIT_BF16, 0, 2, queries, 6, columns);
  args.k = kjit_tensor_bshd(address(2), KJIT_BF16, 0, 2, 8000, 6, columns);
  args.v = kjit_tensor_bshd(address(3), KJIT_BF16, 0, 2, 8000, 6, columns);
  args.o = kjit_tensor_bshd(address(4), KJIT_BF16, 0, 2, queries, 6, columns);
  config.head_dim = config.head_dim_v = (int32_t)columns;
  config.consumers = 1;
  config.ping_pong = 0;
  config.tile_n = 64;
  assert_status(KJIT_OK, sm90_forward(f->runtime, &config, &args, NULL, &f->error), &f->error);
  return map_promotion(&launched()->k);
}

static void test_sm90_lines__are_shared_where_slow_memory_bounds_a_launch(void **state) {
  assert_int_equal(promotion_of(*state, 20, 96), KJIT_MAP_PROMOTION_128B);
  assert_int_equal(promotion_of(*state, 200, 96), KJIT_MAP_PROMOTION_NONE); /* tiles that share keys */
  assert_int_equal(promotion_of(*state, 20, 128), KJIT_MAP_PROMOTION_256B); /* whole lines */
}

static void test_sm90_lines__are_not_shared_elsewhere(void **state) {
  assert_int_equal(promotion_of(*state, 20, 96), KJIT_MAP_PROMOTION_NONE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_sm90_lines__are_shared_where_slow_memory_bounds_a_launch, setup_slow,
                                      fixture_teardown),
      ATTENTION_TEST(test_sm90_lines__are_not_shared_elsewhere),
  };
  return cmocka_run_group_tests_name("sm90_lines", tests, NULL, NULL);
}
