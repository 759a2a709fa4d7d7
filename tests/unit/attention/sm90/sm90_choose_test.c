/* The planner: pure arithmetic, so it is asked thousands of times. */
#include "support/test.h"

#include "attention/attention_choose.h"
#include "attention/sm90/sm90_choose.h"
#include "attention/sm90/sm90_config.h"
#include "base/error.h"
#include "support/attention_grid.h"
#include "unit/attention/sm90/sm90_configs.h"

static void test_sm90_choose__every_choice_over_the_grid_is_legal_and_canonical(void **state) {
  (void)state;
  static const uint32_t cards[] = {0, 78, 114, 132};
  assert_true(ATTENTION_GRID_SIZE >= 2000);
  for (size_t i = 0; i < ATTENTION_GRID_SIZE; i++) {
    const kjit_attention_problem problem = attention_grid_problem(i);
    const kjit_attention_sm90_config config = sm90_chosen(&problem, cards[i % 4]);
    const kjit_attention_sm90_config canonical = sm90_canonical(&config);
    kjit_error error;
    assert_status(KJIT_OK, sm90_config_check(&config, "sm_90a", &error), &error);
    assert_int_equal(memcmp(&config, &canonical, sizeof config), 0);
    assert_true(sm90_fits(&config));
    assert_int_equal(config.head_dim, problem.head_dim);
    assert_int_equal(config.head_dim_v, problem.head_dim_v);
    assert_int_equal(config.dtype, problem.dtype);
    assert_int_equal(config.causal, problem.flags & KJIT_ATTENTION_CAUSAL);
    assert_true(config.tile_n >= (config.o_chunks ? 32 : 48)); /* steps of few keys */
  }
}

static void test_sm90_choose__round_head_sizes_get_what_was_measured(void **state) {
  (void)state;
  static const kjit_attention_sm90_config expected[] = {
      {KJIT_BF16, 64, 64, 0, 3, 128, 2, 2, 0, 1, 15, 1, 0},   {KJIT_BF16, 128, 128, 0, 3, 80, 2, 2, 0, 1, 15, 1, 0},
      {KJIT_BF16, 256, 256, 0, 2, 64, 2, 1, 2, 1, 15, 1, 0},  {KJIT_BF16, 64, 64, 1, 3, 128, 2, 2, 0, 1, 15, 1, 0},
      {KJIT_BF16, 128, 128, 1, 2, 128, 2, 2, 0, 1, 15, 1, 0}, {KJIT_BF16, 256, 256, 1, 2, 64, 2, 1, 2, 1, 15, 1, 0},
  };
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    const uint32_t flags = expected[i].causal ? KJIT_ATTENTION_CAUSAL : 0;
    const kjit_attention_problem problem = sm90_problem(4096, expected[i].head_dim, flags);
    const kjit_attention_sm90_config config = sm90_chosen(&problem, 0);
    assert_int_equal(memcmp(&config, &expected[i], sizeof config), 0);
  }
}

/* Q twice where it costs no keys, or what is left of shared memory for O: each 64 columns of 64 rows are 8 KiB. */
static void test_sm90_choose__tiles_overlap_where_there_is_room(void **state) {
  (void)state;
  static const struct {
    int64_t head_dim, head_dim_v;
    int32_t tile_n, q_buffers, o_chunks;
  } rows[] = {
      {128, 128, 128, 2, 2}, {160, 160, 80, 2, 0}, {192, 192, 64, 2, 0}, {256, 256, 64, 1, 2}, {192, 128, 128, 1, 1}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    kjit_attention_problem problem = sm90_problem(1024, rows[i].head_dim, KJIT_ATTENTION_CAUSAL);
    problem.head_dim_v = rows[i].head_dim_v;
    const kjit_attention_sm90_config config = sm90_chosen(&problem, 0);
    assert_int_equal(config.tile_n, rows[i].tile_n);
    assert_int_equal(config.q_buffers, rows[i].q_buffers);
    assert_int_equal(config.o_chunks, rows[i].o_chunks);
  }
}

/* With few key blocks a tile, so that Q of the next tile but one comes in time. As measured. */
static void test_sm90_choose__tiles_of_few_keys_keep_q_for_q_alone(void **state) {
  (void)state;
  static const struct {
    int64_t head_dim, seq_q, seq_kv;
    uint32_t flags;
    int32_t o_chunks;
  } rows[] = {{64, 256, 256, KJIT_ATTENTION_CAUSAL, 1},
              {64, 512, 512, KJIT_ATTENTION_CAUSAL, 1},
              {64, 1024, 1024, KJIT_ATTENTION_CAUSAL, 1},
              {64, 2048, 2048, KJIT_ATTENTION_CAUSAL, 0},
              {80, 512, 512, KJIT_ATTENTION_CAUSAL, 2},
              {96, 1024, 1024, KJIT_ATTENTION_CAUSAL, 2},
              {128, 512, 512, KJIT_ATTENTION_CAUSAL, 2},
              {128, 1024, 1024, KJIT_ATTENTION_CAUSAL, 2},
              {128, 2048, 2048, KJIT_ATTENTION_CAUSAL, 0},
              {64, 512, 512, 0, 0},
              {80, 512, 512, 0, 2},
              {96, 256, 256, 0, 2},
              {128, 256, 256, 0, 2},
              {128, 512, 512, 0, 0},
              {128, 1024, 1024, 0, 0},
              {128, 512, 2048, KJIT_ATTENTION_CAUSAL, 0},
              {192, 512, 512, KJIT_ATTENTION_CAUSAL, 0}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    kjit_attention_problem problem = sm90_problem(rows[i].seq_q, rows[i].head_dim, rows[i].flags);
    problem.seq_kv = rows[i].seq_kv;
    const kjit_attention_sm90_config config = sm90_chosen(&problem, 0);
    assert_int_equal(config.q_buffers, 2);
    assert_int_equal(config.o_chunks, rows[i].o_chunks);
  }
}

static void test_sm90_choose__three_consumers_at_128_want_long_queries(void **state) {
  (void)state;
  static const struct {
    int64_t seq;
    uint32_t flags;
    int32_t consumers, tile_n;
  } rows[] = {
      {2047, 0, 2, 128}, {2048, 0, 3, 80}, {8191, KJIT_ATTENTION_CAUSAL, 2, 128}, {8192, KJIT_ATTENTION_CAUSAL, 3, 80}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const kjit_attention_problem problem = sm90_problem(rows[i].seq, 128, rows[i].flags);
    const kjit_attention_sm90_config config = sm90_chosen(&problem, 0);
    assert_int_equal(config.consumers, rows[i].consumers);
    assert_int_equal(config.tile_n, rows[i].tile_n);
  }
}

static void test_sm90_choose__a_last_round_that_is_nearly_empty_takes_smaller_tiles_at_64(void **state) {
  (void)state;
  kjit_attention_problem problem = sm90_problem(4096, 64, 0);
  problem.batch = 1;
  problem.heads_q = problem.heads_kv = 8;                    /* 22 tiles of 192 rows a head, or 32 of 128 */
  assert_int_equal(sm90_chosen(&problem, 132).consumers, 2); /* two rounds of either */
  assert_int_equal(sm90_chosen(&problem, 176).consumers, 3); /* one round, or two */
}

static void test_sm90_choose__few_rows_take_few_consumers(void **state) {
  (void)state;
  kjit_attention_problem problem = sm90_problem(4096, 128, 0);
  problem.seq_q = 64;
  const kjit_attention_sm90_config config = sm90_chosen(&problem, 0);
  assert_int_equal(config.consumers, 1);
  assert_int_equal(config.ping_pong, 0);
  problem.seq_q = 65;
  assert_int_equal(sm90_chosen(&problem, 0).consumers, 2);
}

static void test_sm90_choose__few_keys_take_one_smaller_tile(void **state) {
  (void)state;
  for (int64_t keys = 1; keys <= 64; keys += 21) {
    kjit_attention_problem problem = sm90_problem(512, 128, 0);
    problem.seq_kv = keys;
    assert_int_equal(sm90_chosen(&problem, 0).tile_n, 64);
  }
}

static kjit_attention_problem decode(int64_t batch, int64_t heads_q, int64_t heads_kv, int64_t seq_q, int64_t seq_kv) {
  kjit_attention_problem problem = sm90_problem(seq_kv, 128, 0);
  problem.batch = batch;
  problem.heads_q = heads_q;
  problem.heads_kv = heads_kv;
  problem.seq_q = seq_q;
  return problem;
}

/* A query head, or a few, leave a tile empty; the others that share the keys fill it. */
static void test_sm90_choose__short_queries_pack_the_heads_that_share_keys(void **state) {
  (void)state;
  static const struct {
    int64_t heads_q, heads_kv, seq_q;
    int32_t packed, consumers;
  } rows[] = {
      {64, 8, 1, 8, 1},  {32, 1, 1, 32, 1}, {28, 4, 1, 8, 1},   {8, 8, 1, 1, 1},  {128, 1, 1, 64, 1},
      {64, 8, 16, 8, 2}, {64, 8, 64, 8, 2}, {64, 8, 128, 1, 2}, {12, 4, 1, 4, 1}, {64, 8, 1000, 1, 2},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const kjit_attention_problem problem = decode(64, rows[i].heads_q, rows[i].heads_kv, rows[i].seq_q, 65536);
    const kjit_attention_sm90_config config = sm90_chosen(&problem, 0);
    assert_int_equal(config.packed, rows[i].packed);
    assert_int_equal(config.consumers, rows[i].consumers);
  }
}

/* Parts of a tile are merged by one multiprocessor: tiles of fewer heads are merged at the same time, which pays where
 * there are few, and does not where memory would be read twice for it. As measured. */
static void test_sm90_choose__few_tiles_are_unpacked(void **state) {
  (void)state;
  static const struct {
    int64_t batch, seq_q, seq_kv;
    int32_t packed;
  } rows[] = {{1, 1, 8192, 8},  {1, 1, 65536, 16}, {1, 4, 8192, 4},   {1, 4, 65536, 8},
              {1, 16, 8192, 2}, {8, 1, 8192, 16},  {8, 1, 65536, 32}, {16, 1, 65536, 32}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const kjit_attention_problem problem = decode(rows[i].batch, 32, 1, rows[i].seq_q, rows[i].seq_kv);
    assert_int_equal(sm90_chosen(&problem, 0).packed, rows[i].packed);
  }
}

static void test_sm90_choose__causal_tiles_even_out(void **state) {
  (void)state;
  kjit_attention_problem problem = decode(1, 8, 8, 2048, 2048);
  problem.flags = KJIT_ATTENTION_CAUSAL;
  assert_int_equal(sm90_chosen(&problem, 0).consumers, 1); /* 256 tiles, half as long in the mean as the longest */
  problem = decode(1, 8, 8, 4096, 4096);
  problem.flags = KJIT_ATTENTION_CAUSAL;
  assert_int_equal(sm90_chosen(&problem, 0).consumers, 2);
}

static void test_sm90_choose__tiles_that_share_keys_stay_together(void **state) {
  (void)state;
  kjit_attention_problem problem = decode(1, 64, 8, 64, 65536); /* four tiles of 128 rows share keys */
  assert_int_equal(sm90_chosen(&problem, 0).stages, 2);
  problem = decode(1, 64, 8, 1, 65536);
  assert_int_equal(sm90_chosen(&problem, 0).stages, 3);
}

static void test_sm90_choose__idle_multiprocessors_share_out_keys(void **state) {
  (void)state;
  kjit_attention_problem problem = decode(1, 64, 8, 1, 65536);
  kjit_attention_sm90_config config = sm90_chosen(&problem, 0);
  assert_int_equal(config.split, 1);
  assert_int_equal(config.q_buffers, 1);
  assert_int_equal(config.stages, 3);
  problem = decode(1, 64, 8, 1, 512); /* four key blocks */
  assert_int_equal(sm90_chosen(&problem, 0).split, 0);
  problem = decode(16, 64, 8, 1, 65536); /* 128 tiles on 132 multiprocessors */
  assert_int_equal(sm90_chosen(&problem, 0).split, 0);
  problem = decode(18, 64, 8, 1, 65536); /* 144: two rounds, the second nearly empty */
  assert_int_equal(sm90_chosen(&problem, 0).split, 1);
}

/* Of how many kinds the kernels are for a problem whose keys grow. */
static size_t count_kernels(int64_t heads_q, int64_t heads_kv) {
  kjit_attention_sm90_config seen[16];
  size_t count = 0;
  for (int64_t keys = 1; keys <= 65536; keys += 13) {
    const kjit_attention_problem problem = decode(1, heads_q, heads_kv, 1, keys);
    const kjit_attention_sm90_config config = sm90_chosen(&problem, 0);
    size_t i = 0;
    while (i < count && memcmp(&config, &seen[i], sizeof config) != 0)
      i++;
    if (i < count) continue;
    assert_true(count < sizeof seen / sizeof *seen);
    seen[count++] = config;
  }
  return count;
}

/* As keys are added one by one, the kernel changes with the first block, with the fifth, and never again. */
static void test_sm90_choose__a_growing_cache_of_keys_takes_three_kernels(void **state) {
  (void)state;
  kjit_attention_sm90_config last = {0};
  int kernels = 0;
  for (int64_t keys = 1; keys <= 8192; keys++) {
    const kjit_attention_problem problem = decode(1, 64, 8, 1, keys);
    const kjit_attention_sm90_config config = sm90_chosen(&problem, 0);
    kernels += memcmp(&config, &last, sizeof config) != 0;
    last = config;
  }
  assert_int_equal(kernels, 3);
}

static void test_sm90_choose__one_key_head_takes_few_kernels(void **state) {
  (void)state;
  assert_int_equal(count_kernels(64, 8), 3);
  assert_int_equal(count_kernels(32, 1), 4); /* tiles of 8 heads, later of 16 */
}

static void test_sm90_choose__small_grids_take_smaller_tiles_or_parts(void **state) {
  (void)state;
  kjit_attention_problem problem = decode(1, 8, 8, 1024, 1024); /* 64 tiles of 128 rows */
  kjit_attention_sm90_config config = sm90_chosen(&problem, 0);
  assert_int_equal(config.consumers, 1);
  assert_int_equal(config.split, 0);
  problem = decode(1, 8, 8, 512, 512); /* 32 */
  config = sm90_chosen(&problem, 0);
  assert_int_equal(config.consumers, 1);
  assert_int_equal(config.split, 0);
  problem = decode(1, 8, 8, 2048, 2048); /* 128 */
  assert_int_equal(sm90_chosen(&problem, 0).consumers, 2);
  problem = decode(1, 2, 2, 1024, 4096);
  assert_int_equal(sm90_chosen(&problem, 0).split, 1);
}

static void expect_unsupported(const kjit_attention_problem *problem, const char *part) {
  kjit_attention_sm90_config config;
  kjit_error error;
  assert_status(KJIT_ERR_UNSUPPORTED, sm90_config_choose(problem, 0, &config, &error), &error);
  assert_contains(error.message, part);
  assert_int_equal(config.dtype, 0);
}

static void test_sm90_choose__what_the_kernel_cannot_index_is_unsupported(void **state) {
  (void)state;
  kjit_attention_problem problem = sm90_problem(4096, 100, 0);
  expect_unsupported(&problem, "head_dim is 100: attention_sm90 takes multiples of 8 up to 256");
  problem = sm90_problem(4096, 264, 0);
  expect_unsupported(&problem, "head_dim is 264");
  problem = sm90_problem(1 << 30, 128, 0);
  expect_unsupported(&problem, "seq_q is 1073741824");
  problem = sm90_problem(1 << 24, 128, 0);
  problem.batch = problem.heads_q = problem.heads_kv = 1024;
  expect_unsupported(&problem, "tiles of 64 rows over all 1024 heads");
}

static void test_attention_problem__defaults_are_filled_in(void **state) {
  (void)state;
  kjit_attention_problem sparse = kjit_attention_problem_default(), full = sm90_problem(4096, 128, 0);
  sparse.dtype = KJIT_BF16;
  sparse.seq_q = 4096;
  sparse.head_dim = 128;
  full.batch = full.heads_q = full.heads_kv = 1;
  const kjit_attention_sm90_config a = sm90_chosen(&sparse, 0), b = sm90_chosen(&full, 0);
  assert_int_equal(memcmp(&a, &b, sizeof(kjit_attention_sm90_config)), 0);
}

static void test_attention_problem__faults_name_the_member(void **state) {
  (void)state;
  static const struct {
    size_t offset;
    int64_t value;
    const char *message;
  } rows[] = {
#define ROW(member, value, rule)                                                                                       \
  {offsetof(kjit_attention_problem, member), value, "problem." #member " is " #value ": must " rule}
      ROW(batch, -1, "be from 1 to 2147483647"),  ROW(heads_q, 4294967296, "be from 1 to 2147483647"),
      ROW(heads_kv, 3, "divide heads_q, 16"),     ROW(seq_q, 0, "be from 1 to 2147483392"),
      ROW(seq_kv, -5, "be from 1 to 2147483392"), ROW(head_dim_v, -8, "be from 1 to 2147483647"),
#undef ROW
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    kjit_attention_problem problem = sm90_problem(512, 128, 0);
    kjit_attention_sm90_config config;
    kjit_error error;
    memcpy((char *)&problem + rows[i].offset, &rows[i].value, sizeof rows[i].value);
    assert_status(KJIT_ERR_INVALID_ARG, sm90_config_choose(&problem, 0, &config, &error), &error);
    assert_string_equal(error.message, rows[i].message);
  }
}

static struct attention_choice choose_on(const char *arch, const kjit_attention_problem *problem, kjit_status wanted,
                                         kjit_error *error) {
  static const struct attention_measured nothing;
  struct family_place place;
  struct attention_choice choice;
  error_clear(error);
  assert_status(KJIT_OK, family_place_of_arch(arch, &place, error), error);
  assert_status(wanted, attention_choose(problem, &place, &nothing, false, &choice, error), error);
  return choice;
}

static void test_attention_choose__hopper_gets_its_own_family_and_others_flash_forward(void **state) {
  (void)state;
  const kjit_attention_problem problem = sm90_problem(4096, 128, 0);
  kjit_error error;
  assert_ptr_equal(choose_on("sm_90a", &problem, KJIT_OK, &error).family->family, &sm90_family);
  static const char *const others[] = {"sm_80", "sm_86", "sm_90", "sm_100"};
  for (size_t i = 0; i < 4; i++)
    assert_ptr_equal(choose_on(others[i], &problem, KJIT_OK, &error).family->family, kjit_family_find("flash_forward"));
}

static void test_attention_choose__what_no_family_computes_is_said(void **state) {
  (void)state;
  const kjit_attention_problem problem = sm90_problem(4096, 100, 0);
  kjit_error error;
  choose_on("sm_80", &problem, KJIT_ERR_UNSUPPORTED, &error);
  assert_string_equal(error.message, "no attention kernel for this problem on sm_80: head_dim is 100: flash_forward "
                                     "takes multiples of 8 up to 256");
  choose_on("sm_90a", &problem, KJIT_ERR_UNSUPPORTED, &error);
  assert_string_equal(error.message, "no attention kernel for this problem on sm_90a: head_dim is 100: attention_sm90 "
                                     "takes multiples of 8 up to 256");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sm90_choose__every_choice_over_the_grid_is_legal_and_canonical),
      cmocka_unit_test(test_sm90_choose__round_head_sizes_get_what_was_measured),
      cmocka_unit_test(test_sm90_choose__tiles_overlap_where_there_is_room),
      cmocka_unit_test(test_sm90_choose__tiles_of_few_keys_keep_q_for_q_alone),
      cmocka_unit_test(test_sm90_choose__three_consumers_at_128_want_long_queries),
      cmocka_unit_test(test_sm90_choose__a_last_round_that_is_nearly_empty_takes_smaller_tiles_at_64),
      cmocka_unit_test(test_sm90_choose__few_rows_take_few_consumers),
      cmocka_unit_test(test_sm90_choose__few_keys_take_one_smaller_tile),
      cmocka_unit_test(test_sm90_choose__short_queries_pack_the_heads_that_share_keys),
      cmocka_unit_test(test_sm90_choose__few_tiles_are_unpacked),
      cmocka_unit_test(test_sm90_choose__causal_tiles_even_out),
      cmocka_unit_test(test_sm90_choose__tiles_that_share_keys_stay_together),
      cmocka_unit_test(test_sm90_choose__idle_multiprocessors_share_out_keys),
      cmocka_unit_test(test_sm90_choose__a_growing_cache_of_keys_takes_three_kernels),
      cmocka_unit_test(test_sm90_choose__one_key_head_takes_few_kernels),
      cmocka_unit_test(test_sm90_choose__small_grids_take_smaller_tiles_or_parts),
      cmocka_unit_test(test_sm90_choose__what_the_kernel_cannot_index_is_unsupported),
      cmocka_unit_test(test_attention_problem__defaults_are_filled_in),
      cmocka_unit_test(test_attention_problem__faults_name_the_member),
      cmocka_unit_test(test_attention_choose__hopper_gets_its_own_family_and_others_flash_forward),
      cmocka_unit_test(test_attention_choose__what_no_family_computes_is_said),
  };
  return cmocka_run_group_tests_name("sm90_choose", tests, NULL, NULL);
}
