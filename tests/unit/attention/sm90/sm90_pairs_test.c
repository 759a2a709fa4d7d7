/* Which dense problems take two pairs of consumers: what was measured, and each bound of the rule. */
#include "support/test.h"

#include "attention/sm90/sm90_choose.h"
#include "attention/sm90/sm90_config.h"
#include "base/error.h"
#include "unit/attention/attention_problem.h"
#include "unit/attention/sm90/sm90_configs.h"

struct row {
  int64_t batch, heads, seq_q, seq_kv, head_dim;
  uint32_t flags;
  bool has_pairs;
  int32_t o_chunks;
};

static void expect(const struct row *row, const struct sm90_card *card, bool has_pairs) {
  kjit_attention_problem problem =
      problem_of(row->batch, row->heads, row->heads, row->seq_q, row->seq_kv, row->head_dim);
  kjit_attention_sm90_config before, config;
  kjit_error error = {0};
  problem.flags = row->flags;
  assert_status(KJIT_OK, sm90_choose(&problem, card, &before, &error), &error);
  assert_in_range(before.consumers, 1, 3);
  config = before;
  sm90_take_pairs(&problem, card, &config);
  if (!has_pairs) {
    assert_memory_equal(&config, &before, sizeof config);
    return;
  }
  assert_int_equal(4, config.consumers);
  assert_int_equal(64, config.tile_n);
  assert_int_equal(row->o_chunks, config.o_chunks);
  assert_status(KJIT_OK, sm90_check(&config, &error), &error);
}

static void test_sm90_pairs__are_for_many_tiles_of_few_blocks(void **state) {
  (void)state;
  enum { CAUSAL = KJIT_ATTENTION_CAUSAL };
  static const struct row rows[] = {
      {64, 32, 256, 256, 64, CAUSAL, true, 1},    {64, 32, 256, 256, 64, 0, true, 1},
      {32, 32, 512, 512, 64, CAUSAL, true, 0},    {4, 32, 4096, 4096, 64, CAUSAL, true, 0},
      {16, 32, 1024, 1024, 64, 0, true, 0},       {16, 20, 5343, 299, 64, 0, true, 0},
      {16, 42, 1024, 1024, 48, CAUSAL, true, 0},  {2, 32, 8192, 8192, 64, CAUSAL, false, 0},
      {8, 32, 2048, 2048, 64, 0, false, 0},       {128, 32, 128, 128, 64, CAUSAL, false, 0},
      {4, 32, 4096, 77, 64, 0, false, 0},         {16, 51, 1024, 1024, 40, CAUSAL, false, 0},
      {16, 25, 1024, 1024, 80, CAUSAL, false, 0}, {8, 32, 1024, 2048, 64, CAUSAL, false, 0},
      {1, 20, 813, 813, 64, CAUSAL, false, 0},    {2, 28, 1100, 1100, 64, 0, false, 0},
      {256, 32, 192, 1000, 64, 0, false, 0},      {24, 16, 1152, 1152, 64, 0, false, 0},
      {100, 20, 300, 300, 64, 0, true, 0},        {32, 32, 3072, 3072, 64, CAUSAL, false, 0},
  };
  const struct sm90_card card = usual_card(132), h100 = slow_card(132);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    expect(&rows[i], &card, rows[i].has_pairs);
    expect(&rows[i], &h100, false);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_sm90_pairs__are_for_many_tiles_of_few_blocks)};
  return cmocka_run_group_tests_name("sm90_pairs", tests, NULL, NULL);
}
