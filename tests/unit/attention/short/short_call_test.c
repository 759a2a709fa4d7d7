/* How attention_short_sm90 divides a problem over blocks of threads, and what L2 fetches for its rows, as both reach
 * the driver. */
#include "attention_short_sm90/params.h"
#include "unit/attention/attention_fixture.h"

#include <stdbool.h>

static int setup_short(void **state) {
  return setup_kernel(state, "attention_short_sm90", sizeof(struct attention_short_sm90_params), slow_memory);
}

/* Launch `batch` times 8 heads of 88 columns and of as many queries as keys. */
static struct attention_short_sm90_params launch(struct fixture *f, int64_t batch, int64_t queries, int32_t blocks) {
  kjit_attention_args args = kjit_attention_args_default();
  kjit_config config;
  struct attention_short_sm90_params params;
  assert_status(KJIT_OK,
                kjit_config_parse(kjit_family_find("attention_short_sm90"),
                                  "dtype=bf16,head_dim=88,head_dim_v=88,causal=0,tile_n=80,consumers=1,stages=1,"
                                  "q_buffers=2,blocks_per_sm=2",
                                  &config, &f->error),
                &f->error);
  assert_status(KJIT_OK, kjit_config_set(&config, "blocks_per_sm", blocks, &f->error), &f->error);
  args.q = kjit_tensor_bshd(address(1), KJIT_BF16, 0, batch, queries, 8, 88);
  args.k = kjit_tensor_bshd(address(2), KJIT_BF16, 0, batch, 72, 8, 88);
  args.v = kjit_tensor_bshd(address(3), KJIT_BF16, 0, batch, 72, 8, 88);
  args.o = kjit_tensor_bshd(address(4), KJIT_BF16, 0, batch, queries, 8, 88);
  assert_status(KJIT_OK, kjit_attention_forward(f->runtime, &config, &args, NULL, &f->error), &f->error);
  memcpy(&params, fake_driver.launch.args, sizeof params);
  return params;
}

/* Blocks that have room for one head beside another block's get one each, however many run at a time. */
static void test_short_call__heads_alone_are_blocks_of_their_own(void **state) {
  const struct attention_short_sm90_params params = launch(*state, 30, 80, 2);
  assert_int_equal(fake_driver.launch.grid[0], 30 * 8);
  assert_int_equal(params.whole_heads, 1);
  assert_int_equal(params.run_length, 1);
  assert_int_equal(params.run_rest, 0);
}

static void test_short_call__other_blocks_go_on(void **state) {
  const struct attention_short_sm90_params one_block = launch(*state, 30, 80, 1);
  assert_int_equal(fake_driver.launch.grid[0], MULTIPROCESSORS);
  assert_int_equal(one_block.whole_heads, 1);
  assert_int_equal(one_block.run_length, 30 * 8 / MULTIPROCESSORS);
  const struct attention_short_sm90_params many_tiles = launch(*state, 30, 800, 2);
  assert_int_equal(fake_driver.launch.grid[0], 2 * MULTIPROCESSORS);
  assert_int_equal(many_tiles.whole_heads, 0);
}

/* Neighbouring heads of 88 columns, whose rows are no whole sectors, are computed at the same time. */
static void test_short_call__heads_of_many_tiles_are_blocks_of_their_own(void **state) {
  const struct attention_short_sm90_params params = launch(*state, MULTIPROCESSORS, 800, 1);
  assert_int_equal(fake_driver.launch.grid[0], MULTIPROCESSORS * 8);
  assert_int_equal(params.whole_heads, 1);
  const struct attention_short_sm90_params few_heads = launch(*state, MULTIPROCESSORS - 1, 800, 1);
  assert_int_equal(fake_driver.launch.grid[0], MULTIPROCESSORS);
  assert_int_equal(few_heads.whole_heads, 0);
}

static void test_short_call__neighbours_share_lines_with_slow_memory(void **state) {
  const struct attention_short_sm90_params alone = launch(*state, 30, 80, 2), other = launch(*state, 30, 80, 1);
  assert_int_equal(map_promotion(&alone.k), KJIT_MAP_PROMOTION_128B);
  assert_int_equal(map_promotion(&other.k), KJIT_MAP_PROMOTION_NONE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_short_call__heads_alone_are_blocks_of_their_own, setup_short,
                                      fixture_teardown),
      cmocka_unit_test_setup_teardown(test_short_call__other_blocks_go_on, setup_short, fixture_teardown),
      cmocka_unit_test_setup_teardown(test_short_call__heads_of_many_tiles_are_blocks_of_their_own, setup_short,
                                      fixture_teardown),
      cmocka_unit_test_setup_teardown(test_short_call__neighbours_share_lines_with_slow_memory, setup_short,
                                      fixture_teardown),
  };
  return cmocka_run_group_tests_name("short_call", tests, NULL, NULL);
}
