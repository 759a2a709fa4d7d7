#include "support/test.h"

#include "attention/sm90/sm90_tiles.h"

#define MIB (1024 * 1024)

/* An H200, as far as sections care. */
enum { SMS = 132, L2_BYTES = 60 * MIB };

static int64_t section_of(int64_t batch, int64_t heads_q, int64_t heads_kv, int64_t seq, int64_t head_dim) {
  const kjit_attention_problem problem = {.dtype = KJIT_BF16,
                                          .flags = KJIT_ATTENTION_CAUSAL,
                                          .batch = batch,
                                          .heads_q = heads_q,
                                          .heads_kv = heads_kv,
                                          .seq_q = seq,
                                          .seq_kv = seq,
                                          .head_dim = head_dim,
                                          .head_dim_v = head_dim};
  const kjit_attention_sm90_config config = {.consumers = 2, .tile_n = 128, .packed = 1};
  const struct sm90_tiles tiles = sm90_tiles_of(&problem, &config);
  return sm90_tiles_section(&tiles, &problem, SMS, L2_BYTES);
}

/* 2 MiB of K and V a head: 16 of them are just over half of L2. */
static void test_sm90_section__section_fits_l2(void **state) {
  (void)state;
  assert_int_equal(16, section_of(4, 16, 16, 4096, 128));
}

/* 4 MiB a head, so 8 fit; 25 pairs are 4 sections of 7, 7, 7 and 4, not 8, 8, 8 and 1. */
static void test_sm90_section__sections_are_alike(void **state) {
  (void)state;
  assert_int_equal(8, section_of(3, 10, 10, 8192, 128)); /* 8, 8, 8, 6 */
  assert_int_equal(7, section_of(5, 5, 5, 8192, 128));
}

static void test_sm90_section__section_fills_the_card(void **state) {
  (void)state;
  assert_true(section_of(16, 16, 16, 16384, 256) * (16384 / 128) >= 132);
}

static void test_sm90_section__heads_that_share_keys_count_once(void **state) {
  (void)state;
  assert_int_equal(64, section_of(4, 64, 16, 4096, 128));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sm90_section__section_fits_l2),
      cmocka_unit_test(test_sm90_section__sections_are_alike),
      cmocka_unit_test(test_sm90_section__section_fills_the_card),
      cmocka_unit_test(test_sm90_section__heads_that_share_keys_count_once),
  };
  return cmocka_run_group_tests_name("sm90_section", tests, NULL, NULL);
}
