/* What the planner chooses on cards that are not here, by their published figures: an H200's choices stay what was
 * measured, and those of other cards differ where their figures say so. */
#include "support/test.h"

#include <stdlib.h>

#include "attention/attention_arguments.h"
#include "attention/decode/decode_config.h"
#include "attention/serving_sm90/serving_sm90_config.h"
#include "attention/sm90/sm90_choose.h"
#include "attention/sm90/sm90_config.h"
#include "base/error.h"
#include "family/config.h"
#include "runtime/card.h"
#include "support/attention_grid.h"

static kjit_device_info card_of(const char *name) {
  kjit_device_info card = {.struct_size = sizeof card};
  kjit_error error;
  assert_status(KJIT_OK, kjit_device_find(name, &card, &error), &error);
  return card;
}

static kjit_config choose_for(const kjit_attention_problem *problem, const kjit_device_info *card) {
  kjit_config config;
  kjit_error error;
  assert_status(KJIT_OK, kjit_attention_choose_for(problem, card, &config, &error), &error);
  return config;
}

/* ---- An H200's choices ---- */

enum { SM90 = 1, DECODE = 2, ONE_PART = 3 };

/* Batch, query heads, key heads, queries, keys, head size, causal; then the family and, of attention_sm90, consumers,
 * tile_n, stages, q_buffers, o_chunks, ping_pong, packed and split; of attention_decode_sm90, rows, tile_n, stages and
 * blocks_per_sm; of attention_serving_sm90, rows, keys, stages and blocks_per_sm. The papers' 36 cells, then the decode
 * set of bench/attention_peers.py, and decoding with more tiles. */
/* clang-format off */
static const struct {
  int64_t batch, heads_q, heads_kv, seq_q, seq_kv, head_dim;
  int32_t causal;
  int32_t chosen[9];
} measured[] = {
    {32, 32, 32, 512, 512, 64, 0, {1, 4, 64, 4, 2, 0, 1, 1, 0}},
    {16, 32, 32, 1024, 1024, 64, 0, {1, 4, 64, 4, 2, 0, 1, 1, 0}},
    {8, 32, 32, 2048, 2048, 64, 0, {1, 3, 128, 2, 2, 0, 1, 1, 0}},
    {4, 32, 32, 4096, 4096, 64, 0, {1, 3, 128, 2, 2, 0, 1, 1, 0}},
    {2, 32, 32, 8192, 8192, 64, 0, {1, 3, 128, 2, 2, 0, 1, 1, 0}},
    {1, 32, 32, 16384, 16384, 64, 0, {1, 3, 128, 2, 2, 0, 1, 1, 0}},
    {32, 32, 32, 512, 512, 64, 1, {1, 4, 64, 4, 2, 0, 1, 1, 0}},
    {16, 32, 32, 1024, 1024, 64, 1, {1, 4, 64, 4, 2, 0, 1, 1, 0}},
    {8, 32, 32, 2048, 2048, 64, 1, {1, 4, 64, 4, 2, 0, 1, 1, 0}},
    {4, 32, 32, 4096, 4096, 64, 1, {1, 4, 64, 4, 2, 0, 1, 1, 0}},
    {2, 32, 32, 8192, 8192, 64, 1, {1, 3, 128, 2, 2, 0, 1, 1, 0}},
    {1, 32, 32, 16384, 16384, 64, 1, {1, 3, 128, 2, 2, 0, 1, 1, 0}},
    {32, 16, 16, 512, 512, 128, 0, {1, 2, 128, 2, 2, 0, 1, 1, 0}},
    {16, 16, 16, 1024, 1024, 128, 0, {1, 2, 128, 2, 2, 0, 1, 1, 0}},
    {8, 16, 16, 2048, 2048, 128, 0, {1, 3, 80, 2, 2, 0, 1, 1, 0}},
    {4, 16, 16, 4096, 4096, 128, 0, {1, 3, 80, 2, 2, 0, 1, 1, 0}},
    {2, 16, 16, 8192, 8192, 128, 0, {1, 3, 80, 2, 2, 0, 1, 1, 0}},
    {1, 16, 16, 16384, 16384, 128, 0, {1, 3, 80, 2, 2, 0, 1, 1, 0}},
    {32, 16, 16, 512, 512, 128, 1, {1, 2, 128, 2, 2, 2, 1, 1, 0}},
    {16, 16, 16, 1024, 1024, 128, 1, {1, 2, 128, 2, 2, 2, 1, 1, 0}},
    {8, 16, 16, 2048, 2048, 128, 1, {1, 2, 128, 2, 2, 0, 1, 1, 0}},
    {4, 16, 16, 4096, 4096, 128, 1, {1, 2, 128, 2, 2, 0, 1, 1, 0}},
    {2, 16, 16, 8192, 8192, 128, 1, {1, 3, 80, 2, 2, 0, 1, 1, 0}},
    {1, 16, 16, 16384, 16384, 128, 1, {1, 3, 80, 2, 2, 0, 1, 1, 0}},
    {32, 8, 8, 512, 512, 256, 0, {1, 2, 64, 2, 1, 2, 1, 1, 0}},
    {16, 8, 8, 1024, 1024, 256, 0, {1, 2, 64, 2, 1, 2, 1, 1, 0}},
    {8, 8, 8, 2048, 2048, 256, 0, {1, 2, 64, 2, 1, 2, 1, 1, 0}},
    {4, 8, 8, 4096, 4096, 256, 0, {1, 2, 64, 2, 1, 2, 1, 1, 0}},
    {2, 8, 8, 8192, 8192, 256, 0, {1, 2, 64, 2, 1, 2, 1, 1, 0}},
    {1, 8, 8, 16384, 16384, 256, 0, {1, 2, 64, 2, 1, 2, 1, 1, 0}},
    {32, 8, 8, 512, 512, 256, 1, {1, 2, 64, 2, 1, 2, 1, 1, 0}},
    {16, 8, 8, 1024, 1024, 256, 1, {1, 2, 64, 2, 1, 2, 1, 1, 0}},
    {8, 8, 8, 2048, 2048, 256, 1, {1, 2, 64, 2, 1, 2, 1, 1, 0}},
    {4, 8, 8, 4096, 4096, 256, 1, {1, 2, 64, 2, 1, 2, 1, 1, 0}},
    {2, 8, 8, 8192, 8192, 256, 1, {1, 2, 64, 2, 1, 2, 1, 1, 0}},
    {1, 8, 8, 16384, 16384, 256, 1, {1, 2, 64, 2, 1, 2, 1, 1, 0}},
    {8, 64, 8, 1, 8192, 128, 0, {3, 64, 64, 2, 2}},
    {8, 64, 8, 1, 16384, 128, 0, {3, 64, 64, 2, 2}},
    {8, 64, 8, 1, 32768, 128, 0, {3, 64, 64, 2, 2}},
    {8, 64, 8, 1, 65536, 128, 0, {3, 64, 64, 2, 2}},
    {1, 64, 8, 1, 8192, 128, 0, {3, 64, 64, 2, 2}},
    {1, 64, 8, 1, 65536, 128, 0, {3, 64, 64, 2, 2}},
    {1, 64, 8, 4, 8192, 128, 0, {3, 64, 64, 2, 2}},
    {1, 64, 8, 4, 65536, 128, 0, {3, 64, 64, 2, 2}},
    {1, 64, 8, 16, 8192, 128, 0, {3, 128, 128, 3, 1}},
    {1, 64, 8, 16, 65536, 128, 0, {3, 128, 128, 3, 1}},
    {1, 64, 8, 64, 8192, 128, 0, {1, 2, 128, 2, 1, 0, 1, 8, 1}},
    {1, 64, 8, 64, 65536, 128, 0, {1, 2, 128, 2, 1, 0, 1, 8, 1}},
    {1, 64, 8, 128, 8192, 128, 0, {1, 2, 128, 2, 1, 0, 1, 1, 1}},
    {1, 64, 8, 128, 65536, 128, 0, {1, 2, 128, 2, 1, 0, 1, 1, 1}},
    {8, 32, 1, 1, 8192, 128, 0, {3, 64, 64, 2, 2}},
    {8, 32, 1, 1, 16384, 128, 0, {3, 64, 64, 2, 2}},
    {8, 32, 1, 1, 32768, 128, 0, {3, 64, 64, 2, 2}},
    {8, 32, 1, 1, 65536, 128, 0, {3, 64, 64, 2, 2}},
    {1, 32, 1, 1, 8192, 128, 0, {3, 64, 64, 2, 2}},
    {1, 32, 1, 1, 65536, 128, 0, {3, 64, 64, 2, 2}},
    {1, 32, 1, 4, 8192, 128, 0, {3, 64, 64, 2, 2}},
    {1, 32, 1, 4, 65536, 128, 0, {3, 128, 128, 3, 1}},
    {1, 32, 1, 16, 8192, 128, 0, {3, 128, 128, 3, 1}},
    {1, 32, 1, 16, 65536, 128, 0, {3, 128, 128, 3, 1}},
    {1, 32, 1, 64, 8192, 128, 0, {3, 128, 128, 3, 1}},
    {1, 32, 1, 64, 65536, 128, 0, {1, 2, 128, 2, 1, 0, 1, 32, 1}},
    {1, 32, 1, 128, 8192, 128, 0, {1, 2, 128, 2, 1, 0, 1, 1, 1}},
    {1, 32, 1, 128, 65536, 128, 0, {1, 2, 128, 2, 1, 0, 1, 1, 1}},
    {20, 64, 8, 1, 8192, 128, 0, {2, 16, 64, 3, 2}},
    {9, 32, 8, 1, 65536, 128, 0, {2, 16, 64, 3, 2}},
    {32, 32, 8, 1, 8192, 64, 0, {2, 16, 128, 3, 2}},
};
/* clang-format on */

static void expect_sm90(const kjit_config *config, const int32_t chosen[9]) {
  const kjit_attention_sm90_config *it = sm90_config_view(config->values);
  const int32_t found[] = {it->consumers, it->tile_n,    it->stages, it->q_buffers,
                           it->o_chunks,  it->ping_pong, it->packed, it->split};
  assert_string_equal(kjit_family_name(config->family), "attention_sm90");
  assert_memory_equal(found, chosen + 1, sizeof found);
}

static void expect_decode(const kjit_config *config, const int32_t chosen[9]) {
  const kjit_attention_decode_sm90_config *it = decode_config_view(config->values);
  const int32_t found[] = {it->rows, it->tile_n, it->stages, it->blocks_per_sm};
  assert_string_equal(kjit_family_name(config->family), "attention_decode_sm90");
  assert_memory_equal(found, chosen + 1, sizeof found);
}

static void expect_one_part(const kjit_config *config, const int32_t chosen[9]) {
  const struct serving_sm90_config *it = serving_sm90_view(config->values);
  const int32_t found[] = {it->rows, it->keys, it->stages, it->blocks_per_sm};
  assert_string_equal(kjit_family_name(config->family), "attention_serving_sm90");
  assert_true(it->one_part);
  assert_memory_equal(found, chosen + 1, sizeof found);
}

static kjit_attention_problem measured_problem(size_t i) {
  kjit_attention_problem problem = kjit_attention_problem_default();
  problem.dtype = KJIT_BF16;
  problem.flags = measured[i].causal ? KJIT_ATTENTION_CAUSAL : 0;
  problem.batch = measured[i].batch;
  problem.heads_q = measured[i].heads_q;
  problem.heads_kv = measured[i].heads_kv;
  problem.seq_q = measured[i].seq_q;
  problem.seq_kv = measured[i].seq_kv;
  problem.head_dim = problem.head_dim_v = measured[i].head_dim;
  return problem;
}

static void test_planner__chooses_on_an_h200_what_was_measured_there(void **state) {
  (void)state;
  const kjit_device_info h200 = card_of("H200");
  for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
    const kjit_attention_problem problem = measured_problem(i);
    const kjit_config config = choose_for(&problem, &h200);
    if (measured[i].chosen[0] == SM90)
      expect_sm90(&config, measured[i].chosen);
    else if (measured[i].chosen[0] == DECODE)
      expect_decode(&config, measured[i].chosen);
    else
      expect_one_part(&config, measured[i].chosen);
  }
}

static void test_planner__takes_an_h200_where_only_the_architecture_is_known(void **state) {
  (void)state;
  const kjit_device_info h200 = card_of("H200");
  for (size_t i = 0; i < ATTENTION_GRID_SIZE; i += 7) {
    const kjit_attention_problem problem = attention_grid_problem(i);
    const kjit_config there = choose_for(&problem, &h200);
    kjit_config anywhere;
    kjit_error error;
    assert_status(KJIT_OK, kjit_attention_choose(NULL, &problem, "sm_90a", &anywhere, NULL, &error), &error);
    assert_ptr_equal(there.family, anywhere.family);
    assert_memory_equal(there.values, anywhere.values, there.family->table.config_bytes);
  }
}

/* ---- Other cards ---- */

static void test_planner__chooses_what_each_card_can_run(void **state) {
  (void)state;
  const char *name;
  for (uint32_t i = 0; (name = kjit_device_known(i)) != NULL; i++) {
    const kjit_device_info card = card_of(name);
    for (size_t n = i; n < ATTENTION_GRID_SIZE; n += 17) {
      const kjit_attention_problem problem = attention_grid_problem(n);
      const kjit_config config = choose_for(&problem, &card);
      kjit_error error;
      assert_status(KJIT_OK, kjit_config_check(&config, card.arch_specific, &error), &error);
      assert_true(kjit_config_geometry(&config).shared_bytes <= card.max_shared_per_block);
    }
  }
}

/* The modelled time of a problem on a card, with the best number of splits. */
static int64_t time_on(const char *name, int64_t batch, int64_t heads, int64_t seq_q, int64_t seq_kv) {
  const kjit_device_info info = card_of(name);
  const struct family_place place = family_place_of_device(&info);
  const struct sm90_card card = sm90_card_of(place.sm_count, &place.figures);
  kjit_attention_problem problem = kjit_attention_problem_default(), taken;
  kjit_attention_sm90_config config;
  kjit_error error;
  problem.dtype = KJIT_BF16;
  problem.batch = batch;
  problem.heads_q = problem.heads_kv = heads;
  problem.seq_q = seq_q;
  problem.seq_kv = seq_kv;
  problem.head_dim = 128;
  assert_status(KJIT_OK, attention_problem_take(&taken, &problem, &error), &error);
  assert_status(KJIT_OK, sm90_choose(&taken, &card, &config, &error), &error);
  const struct sm90_tiles tiles = sm90_tiles_of(&taken, &config);
  return sm90_tiles_time(&tiles, &config, config.split ? sm90_tiles_parts(&tiles, &config, &card) : 1, &card);
}

static void expect_ratio(int64_t a, int64_t b, double least, double most) {
  const double ratio = (double)a / (double)b;
  if (ratio < least || ratio > most) fail_msg("%.2f is not from %.2f to %.2f", ratio, least, most);
}

/* One query a head over many keys: the time is that of reading them. */
static void test_planner_model__few_queries_take_as_long_as_the_cards_memory(void **state) {
  (void)state;
  const int64_t h200 = time_on("H200", 32, 32, 1, 16384);
  expect_ratio(time_on("H100", 32, 32, 1, 16384), h200, 1.3, 1.5);      /* 4800 / 3352 GB/s */
  expect_ratio(time_on("H100 PCIe", 32, 32, 1, 16384), h200, 2.0, 2.6); /* 4800 / 2039 */
  expect_ratio(time_on("GH200", 32, 32, 1, 16384), h200, 0.9, 1.01);
}

/* Long queries: the time is that of the products. */
static void test_planner_model__long_queries_take_as_long_as_the_cards_tensor_cores(void **state) {
  (void)state;
  const int64_t h200 = time_on("H200", 4, 32, 8192, 8192);
  expect_ratio(time_on("H100", 4, 32, 8192, 8192), h200, 0.99, 1.05);
  expect_ratio(time_on("H100 PCIe", 4, 32, 8192, 8192), h200, 1.3, 1.7); /* fewer SMs at a lower clock */
  expect_ratio(time_on("H20", 4, 32, 8192, 8192), h200, 4.0, 6.5);       /* a quarter of the products, 78 SMs */
}

/* Some tens of tiles, on cards of 132 and of 78 SMs: where SMs would idle, tiles are split or made smaller. */
static void test_planner__splits_or_shrinks_where_sms_would_idle(void **state) {
  (void)state;
  kjit_attention_problem problem = kjit_attention_problem_default();
  problem.dtype = KJIT_BF16;
  problem.heads_q = problem.heads_kv = 1;
  problem.seq_q = 4096;
  problem.seq_kv = 65536;
  problem.head_dim = 128;
  static const char *const names[] = {"H100 PCIe", "H100", "H20", "H200", "GH200"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const kjit_device_info card = card_of(names[i]);
    const kjit_config config = choose_for(&problem, &card);
    assert_int_equal(sm90_config_view(config.values)->split, 1);
  }
}

/* An L40S has 99 KiB of shared memory a block and an A100 163: the tiles for much of it are only an A100's. */
static void test_planner__tiles_of_flash_forward_are_by_shared_memory(void **state) {
  (void)state;
  kjit_attention_problem problem = kjit_attention_problem_default();
  problem.dtype = KJIT_BF16;
  problem.seq_q = 4096;
  problem.head_dim = 128;
  const kjit_device_info a100 = card_of("A100"), l40s = card_of("L40S"), b200 = card_of("B200");
  const kjit_config on_a100 = choose_for(&problem, &a100), on_l40s = choose_for(&problem, &l40s);
  const kjit_config on_b200 = choose_for(&problem, &b200);
  assert_string_equal(kjit_family_name(on_a100.family), "flash_forward");
  assert_ptr_equal(on_l40s.family, on_a100.family);
  assert_memory_equal(on_b200.values, on_a100.values, on_a100.family->table.config_bytes);
  assert_memory_not_equal(on_l40s.values, on_a100.values, on_a100.family->table.config_bytes);
}

/* ---- Figures by hand ---- */

static void test_planner__card_by_hand_is_checked(void **state) {
  (void)state;
  kjit_attention_problem problem = kjit_attention_problem_default();
  kjit_device_info card = card_of("H200");
  kjit_config config;
  kjit_error error;
  problem.dtype = KJIT_BF16;
  problem.seq_q = problem.head_dim = 64;
  card.multiprocessors = 0;
  assert_status(KJIT_ERR_INVALID_ARG, kjit_attention_choose_for(&problem, &card, &config, &error), &error);
  assert_string_equal(error.message, "device.multiprocessors is 0: must be from 1 to 4096");
  card.multiprocessors = 132;
  card.load_mhz = 1; /* GHz? */
  assert_status(KJIT_ERR_INVALID_ARG, kjit_attention_choose_for(&problem, &card, &config, &error), &error);
  assert_string_equal(error.message, "device.load_mhz is 1: must be 0 or from 100 to 100000");
  card = card_of("H200");
  memset(card.arch_specific, 'x', sizeof card.arch_specific);
  assert_status(KJIT_ERR_INVALID_ARG, kjit_attention_choose_for(&problem, &card, &config, &error), &error);
  assert_string_equal(error.message, "device.arch_specific: must end in NUL");
  assert_status(KJIT_ERR_INVALID_ARG, kjit_attention_choose_for(&problem, NULL, &config, &error), &error);
}

static void test_device_find__knows_names_of_people_and_of_drivers(void **state) {
  (void)state;
  kjit_device_info card = {.struct_size = sizeof card};
  kjit_error error;
  assert_int_equal(card_of("h20").multiprocessors, 78);
  assert_int_equal(card_of("NVIDIA H200").multiprocessors, 132);
  assert_int_equal(card_of("NVIDIA H100 PCIe").multiprocessors, 114);
  assert_int_equal(card_of("NVIDIA H100 80GB HBM3").memory_gb_s, 3352);
  assert_status(KJIT_ERR_NOT_FOUND, kjit_device_find("H2", &card, &error), &error);
  assert_contains(error.message, "known are A100, L40S");
}

static void test_card_fill__takes_what_the_driver_states_of_an_unknown_card(void **state) {
  (void)state;
  kjit_device_info card = {.name = "NVIDIA H900", .clock_khz = 2000000};
  card_fill(&card, 90, 3000);
  assert_int_equal(card.memory_gb_s, 3000);
  assert_int_equal(card.load_mhz, 1600);
  assert_int_equal(card.tensor_flops, 4096);
  card.clock_khz = 13; /* of a driver that states nothing */
  card_fill(&card, 90, 0);
  assert_int_equal(card.memory_gb_s + card.load_mhz + card.tensor_flops, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_planner__chooses_on_an_h200_what_was_measured_there),
      cmocka_unit_test(test_planner__takes_an_h200_where_only_the_architecture_is_known),
      cmocka_unit_test(test_planner__chooses_what_each_card_can_run),
      cmocka_unit_test(test_planner_model__few_queries_take_as_long_as_the_cards_memory),
      cmocka_unit_test(test_planner_model__long_queries_take_as_long_as_the_cards_tensor_cores),
      cmocka_unit_test(test_planner__splits_or_shrinks_where_sms_would_idle),
      cmocka_unit_test(test_planner__tiles_of_flash_forward_are_by_shared_memory),
      cmocka_unit_test(test_planner__card_by_hand_is_checked),
      cmocka_unit_test(test_device_find__knows_names_of_people_and_of_drivers),
      cmocka_unit_test(test_card_fill__takes_what_the_driver_states_of_an_unknown_card),
  };
  return cmocka_run_group_tests_name("the planner on other cards", tests, NULL, NULL);
}
