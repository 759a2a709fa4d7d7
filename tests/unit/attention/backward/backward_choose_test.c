/* The planner of backward calls, and the rules of both families' configs. */
#include <string.h>

#include <kjit/attention_backward.h>

#include "support/test.h"

#define ALL (KJIT_GRADIENT_Q | KJIT_GRADIENT_K | KJIT_GRADIENT_V)

static kjit_attention_problem problem_of(int64_t head_dim, int64_t head_dim_v) {
  kjit_attention_problem problem = kjit_attention_problem_default();
  problem.dtype = KJIT_BF16;
  problem.seq_q = 4096;
  problem.head_dim = head_dim;
  problem.head_dim_v = head_dim_v;
  return problem;
}

static int32_t pass_of(const kjit_config *config) {
  int32_t pass = 0;
  kjit_error error;
  assert_status(KJIT_OK, kjit_config_get(config, "pass", &pass, &error), &error);
  return pass;
}

/* The passes of the kernels that are chosen, as digits of a number: 16 for dq, then dk and dv. */
static int passes(const kjit_attention_problem *problem, uint32_t gradients, const char *arch, const char *family) {
  kjit_config configs[KJIT_ATTENTION_BACKWARD_KERNELS_MAX];
  kjit_error error;
  size_t count = 0;
  int digits = 0;
  assert_status(KJIT_OK, kjit_attention_backward_choose(problem, gradients, arch, configs, &count, &error), &error);
  for (size_t i = 0; i < count; i++) {
    digits = 10 * digits + pass_of(&configs[i]);
    if (pass_of(&configs[i]) != 8) assert_string_equal(kjit_family_name(configs[i].family), family);
    assert_status(KJIT_OK, kjit_config_check(&configs[i], arch, &error), &error);
  }
  return digits;
}

static void test_backward_choose__dq_comes_first_and_delta_before_dk(void **state) {
  const kjit_attention_problem problem = problem_of(64, 64);
  (void)state;
  assert_int_equal(16, passes(&problem, ALL, "sm_80", "flash_backward"));
  assert_int_equal(1, passes(&problem, KJIT_GRADIENT_Q, "sm_80", "flash_backward"));
  assert_int_equal(82, passes(&problem, KJIT_GRADIENT_K, "sm_80", "flash_backward"));
  assert_int_equal(4, passes(&problem, KJIT_GRADIENT_V, "sm_80", "flash_backward"));
  assert_int_equal(86, passes(&problem, KJIT_GRADIENT_K | KJIT_GRADIENT_V, "sm_80", "flash_backward"));
  assert_int_equal(14, passes(&problem, KJIT_GRADIENT_Q | KJIT_GRADIENT_V, "sm_80", "flash_backward"));
}

static void test_backward_choose__hopper_has_a_family_of_its_own(void **state) {
  const kjit_attention_problem problem = problem_of(128, 128);
  (void)state;
  assert_int_equal(886, passes(&problem, ALL, "sm_90a", "attention_backward_sm90"));
  assert_int_equal(86, passes(&problem, KJIT_GRADIENT_K | KJIT_GRADIENT_V, "sm_90a", "attention_backward_sm90"));
  assert_int_equal(16, passes(&problem, ALL, "sm_90", "flash_backward"));
}

static void test_backward_choose__dk_and_dv_of_large_heads_are_two_kernels(void **state) {
  const kjit_attention_problem problem = problem_of(256, 256);
  (void)state;
  assert_int_equal(124, passes(&problem, ALL, "sm_80", "flash_backward"));
  assert_int_equal(16, passes(&problem, ALL, "sm_90a", "attention_backward_sm90")); /* its consumers split them */
  assert_int_equal(824, passes(&problem, KJIT_GRADIENT_K | KJIT_GRADIENT_V, "sm_86", "flash_backward"));
}

/* The kernels for 4 x 8 heads, or with groups of 8, and so many queries and keys. */
static int passes_of(int64_t head_dim, int64_t seq, uint32_t flags, int64_t heads_kv) {
  kjit_attention_problem problem = problem_of(head_dim, head_dim);
  problem.batch = 4;
  problem.heads_q = 8;
  problem.heads_kv = heads_kv;
  problem.seq_q = problem.seq_kv = seq;
  problem.flags = flags;
  return passes(&problem, ALL, "sm_90a", "attention_backward_sm90");
}

/* By five products (8, 7, 16) where the measured lengths say so, else by seven (1, 6). */
static void test_backward_choose__sums_dq_in_memory_where_that_is_faster(void **state) {
  enum { FIVE = 886, SEVEN = 16, CAUSAL = KJIT_ATTENTION_CAUSAL, IN_ORDER = KJIT_ATTENTION_DETERMINISTIC };
  (void)state;
  assert_int_equal(FIVE, passes_of(64, 4096, 0, 8));
  assert_int_equal(FIVE, passes_of(40, 512, CAUSAL, 8));
  assert_int_equal(SEVEN, passes_of(64, 256, 0, 8));
  assert_int_equal(FIVE, passes_of(64, 4096, CAUSAL | IN_ORDER, 8));
  assert_int_equal(FIVE, passes_of(128, 512, 0, 8));
  assert_int_equal(FIVE, passes_of(128, 512, CAUSAL, 8));
  assert_int_equal(FIVE, passes_of(128, 1024, CAUSAL, 8));
  assert_int_equal(FIVE, passes_of(72, 1024, CAUSAL, 8));
  assert_int_equal(SEVEN, passes_of(136, 4096, 0, 8));
  assert_int_equal(FIVE, passes_of(128, 2048, CAUSAL, 8));
  assert_int_equal(SEVEN, passes_of(256, 16384, 0, 8));
}

/* A tile of keys takes its turn behind the one before it, so that few of them keep each other waiting. */
static void test_backward_choose__few_tiles_take_no_turns(void **state) {
  enum { FIVE = 886, SEVEN = 16, CAUSAL = KJIT_ATTENTION_CAUSAL, IN_ORDER = KJIT_ATTENTION_DETERMINISTIC };
  (void)state;
  assert_int_equal(SEVEN, passes_of(64, 896, IN_ORDER, 8));
  assert_int_equal(FIVE, passes_of(64, 1023, IN_ORDER, 8)); /* 256 tiles */
  assert_int_equal(FIVE, passes_of(64, 896, CAUSAL | IN_ORDER, 8));
  for (uint32_t causal = 0; causal <= CAUSAL; causal += CAUSAL) {
    assert_int_equal(SEVEN, passes_of(128, 2944, causal | IN_ORDER, 8));
    assert_int_equal(FIVE, passes_of(128, 3071, causal | IN_ORDER, 8)); /* 768 tiles */
    assert_int_equal(FIVE, passes_of(128, 2944, causal, 8));
  }
}

/* Of the kernel that sums dq. */
static int32_t sums_field(int64_t head_dim, int64_t seq, uint32_t flags, const char *field) {
  kjit_config configs[KJIT_ATTENTION_BACKWARD_KERNELS_MAX];
  kjit_attention_problem problem = problem_of(head_dim, head_dim);
  kjit_error error;
  size_t count = 0;
  int32_t value = -1;
  problem.batch = seq < 32768 ? 131072 / seq : 4; /* 1024 tiles of keys, and so much memory for the sums */
  problem.seq_q = problem.seq_kv = seq;
  problem.flags = flags;
  assert_status(KJIT_OK, kjit_attention_backward_choose(&problem, ALL, "sm_90a", configs, &count, &error), &error);
  assert_int_equal(pass_of(&configs[1]), 7);
  assert_status(KJIT_OK, kjit_config_get(&configs[1], field, &value, &error), &error);
  return value;
}

static void test_backward_choose__blocks_are_persistent_where_that_is_faster(void **state) {
  enum { CAUSAL = KJIT_ATTENTION_CAUSAL, IN_ORDER = KJIT_ATTENTION_DETERMINISTIC };
  (void)state;
  assert_int_equal(1, sums_field(64, 1024, 0, "persistent"));
  assert_int_equal(1, sums_field(64, 2048, 0, "persistent"));
  assert_int_equal(1, sums_field(64, 4096, 0, "persistent"));
  assert_int_equal(1, sums_field(64, 16384, 0, "persistent"));
  assert_int_equal(1, sums_field(64, 4096, CAUSAL, "persistent"));
  assert_int_equal(1, sums_field(64, 8192, CAUSAL, "persistent"));
  assert_int_equal(0, sums_field(64, 16384, CAUSAL, "persistent"));
  assert_int_equal(1, sums_field(64, 4097, CAUSAL | IN_ORDER, "persistent"));
  assert_int_equal(1, sums_field(64, 8192, CAUSAL | IN_ORDER, "persistent"));
  assert_int_equal(0, sums_field(64, 16384, CAUSAL | IN_ORDER, "persistent"));
  assert_int_equal(1, sums_field(128, 2048, IN_ORDER, "persistent"));
  assert_int_equal(0, sums_field(128, 4096, IN_ORDER, "persistent"));
  assert_int_equal(1, sums_field(128, 8191, 0, "persistent"));
  assert_int_equal(0, sums_field(128, 8192, 0, "persistent"));
  assert_int_equal(0, sums_field(80, 16384, 0, "persistent"));
  assert_int_equal(1, sums_field(128, 4096, CAUSAL, "persistent"));
  assert_int_equal(0, sums_field(80, 100000, CAUSAL, "persistent"));
}

static void test_backward_choose__consumers_are_half_a_step_apart_where_that_is_faster(void **state) {
  enum { CAUSAL = KJIT_ATTENTION_CAUSAL, IN_ORDER = KJIT_ATTENTION_DETERMINISTIC };
  (void)state;
  assert_int_equal(1, sums_field(64, 512, 0, "staggered"));
  assert_int_equal(1, sums_field(40, 16384, 0, "staggered"));
  assert_int_equal(0, sums_field(64, 1024, CAUSAL, "staggered"));
  assert_int_equal(1, sums_field(40, 4096, CAUSAL, "staggered"));
  assert_int_equal(0, sums_field(64, 512, CAUSAL | IN_ORDER, "staggered"));
  assert_int_equal(1, sums_field(64, 4096, CAUSAL | IN_ORDER, "staggered"));
  assert_int_equal(1, sums_field(64, 16384, IN_ORDER, "staggered"));
  assert_int_equal(0, sums_field(128, 4096, 0, "staggered"));
}

/* In any order full attention always stores, because its tiles begin at different steps. */
static void test_backward_choose__first_parts_are_stored_where_that_is_faster(void **state) {
  enum { CAUSAL = KJIT_ATTENTION_CAUSAL, IN_ORDER = KJIT_ATTENTION_DETERMINISTIC };
  (void)state;
  for (int64_t head_dim = 40; head_dim <= 128; head_dim += 8) {
    for (int64_t seq = 512; seq <= 16384; seq *= 2)
      assert_int_equal(1, sums_field(head_dim, seq, 0, "stores"));
  }
  assert_int_equal(1, sums_field(64, 16383, CAUSAL, "stores"));
  assert_int_equal(0, sums_field(64, 16384, CAUSAL, "stores"));
  assert_int_equal(1, sums_field(128, 16384, CAUSAL, "stores"));
  assert_int_equal(1, sums_field(64, 512, IN_ORDER, "stores"));
  assert_int_equal(0, sums_field(64, 16384, IN_ORDER, "stores"));
}

static void test_backward_choose__few_blocks_of_grouped_heads_leave_dq_its_own_kernel(void **state) {
  (void)state;
  assert_int_equal(16, passes_of(64, 1024, 0, 1));
  assert_int_equal(886, passes_of(64, 16384, 0, 1));
}

/* Every head size, on cards with much and little shared memory. */
static void test_backward_choose__every_head_size_has_kernels(void **state) {
  static const char *const archs[] = {"sm_80", "sm_86", "sm_90a", "sm_120"};
  (void)state;
  for (int64_t d = 8; d <= 256; d += 8) {
    for (int64_t dv = 8; dv <= 256; dv += 8) {
      const kjit_attention_problem problem = problem_of(d, dv);
      for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        assert_true(passes(&problem, ALL, archs[i], i == 2 ? "attention_backward_sm90" : "flash_backward") >= 16);
    }
  }
}

static void expect_refused(kjit_status status, const kjit_attention_problem *problem, uint32_t gradients,
                           const char *arch, const char *message) {
  kjit_config configs[KJIT_ATTENTION_BACKWARD_KERNELS_MAX];
  kjit_error error;
  size_t count = 7;
  assert_int_equal(status, kjit_attention_backward_choose(problem, gradients, arch, configs, &count, &error));
  assert_string_equal(error.message, message);
  assert_int_equal(count, 0);
}

static void test_backward_choose__refuses_what_no_family_computes(void **state) {
  kjit_attention_problem problem = problem_of(264, 264);
  (void)state;
  expect_refused(KJIT_ERR_UNSUPPORTED, &problem, ALL, "sm_80",
                 "no kernel for attention backward for this problem on sm_80: head_dim is 264: flash_backward takes "
                 "multiples of 8 up to 256");
  problem = problem_of(64, 64);
  expect_refused(KJIT_ERR_UNSUPPORTED, &problem, ALL, "sm_75",
                 "no kernel for attention backward for this problem on sm_75: arch: flash_backward requires sm_80 or "
                 "higher (current: sm_75)");
  expect_refused(KJIT_ERR_INVALID_ARG, &problem, 0, "sm_80", "gradients: must be one or more of KJIT_GRADIENT_*");
  expect_refused(KJIT_ERR_INVALID_ARG, &problem, 8, "sm_80", "gradients: must be one or more of KJIT_GRADIENT_*");
  expect_refused(KJIT_ERR_INVALID_ARG, &problem, ALL, NULL, "arch: must not be NULL");
}

/* ---- Rules ---- */

static void expect_rule(const char *family, const char *text, const char *message) {
  kjit_config config;
  kjit_error error;
  assert_status(KJIT_OK, kjit_config_parse(kjit_family_find(family), text, &config, &error), &error);
  const kjit_status status = kjit_config_check(&config, NULL, &error);
  if (!message) {
    assert_status(KJIT_OK, status, &error);
    return;
  }
  assert_status(KJIT_ERR_INVALID_CONFIG, status, &error);
  assert_string_equal(error.message, message);
}

#define FLASH(head, pass, m, n, warps, stages)                                                                         \
  "dtype=bf16,head_dim=" head ",head_dim_v=64,causal=0,pass=" pass ",tile_m=" m ",tile_n=" n ",n_warps=" warps         \
  ",stages=" stages

static void test_flash_backward_rules__say_what_is_wrong(void **state) {
  (void)state;
  expect_rule("flash_backward", FLASH("64", "1", "64", "64", "4", "2"), NULL);
  expect_rule("flash_backward", FLASH("60", "1", "64", "64", "4", "2"),
              "head_dim is 60: must be a multiple of 8 from 8 to 256");
  expect_rule("flash_backward", FLASH("64", "3", "64", "64", "4", "2"),
              "pass is 3: must be 1 (dq), 2 (dk), 4 (dv), 6 (dk and dv), 8 (delta alone) or 64 (what scores read)");
  expect_rule("flash_backward", FLASH("64", "1", "32", "64", "4", "2"),
              "tile_m is 32: must be a multiple of 64 up to 256, 16 rows for each warp");
  expect_rule("flash_backward", FLASH("64", "6", "32", "32", "4", "2"),
              "tile_n is 32: must be a multiple of 64 up to 256, 16 rows for each warp");
  expect_rule("flash_backward", FLASH("64", "1", "64", "40", "4", "2"),
              "tile_n is 40: must be a multiple of 16 up to 256");
  expect_rule("flash_backward", FLASH("64", "1", "64", "64", "3", "2"), "n_warps is 3: must be 1, 2, 4 or 8");
  expect_rule("flash_backward", FLASH("64", "1", "64", "64", "4", "3"), "stages is 3: must be 1 or 2");
  expect_rule(
      "flash_backward", FLASH("256", "6", "64", "128", "4", "2"),
      "n_warps is 4: with pass 6, tile_m 64, tile_n 128, head_dim 256 and head_dim_v 64 a thread accumulates in "
      "448 registers; must be at most 256");
}

#define SM90(pass, consumers, tile, stages, value_stages, pipelined)                                                   \
  "dtype=bf16,head_dim=128,head_dim_v=128,causal=0,pass=" pass ",consumers=" consumers ",tile=" tile ",stages=" stages \
  ",value_stages=" value_stages ",pipelined=" pipelined ",direct=0,staggered=0,persistent=0,stores=0"

static void test_attention_backward_sm90_rules__say_what_is_wrong(void **state) {
  static const char family[] = "attention_backward_sm90";
  (void)state;
  expect_rule(family, SM90("1", "2", "64", "3", "3", "1"), NULL);
  expect_rule(family, SM90("5", "2", "64", "3", "3", "1"),
              "pass is 5: must be 1 (dq), 2 (dk), 4 (dv), 6 (dk and dv), 7 (dk, dv, and dq in sums), 8 (delta, and "
              "sums of zero) or 16 (dq from sums)");
  expect_rule(family, SM90("7", "2", "64", "2", "2", "1"), NULL);
  expect_rule(family, SM90("7", "2", "96", "2", "2", "1"), "tile is 96: must be 64 or 128 with pass 7, 8 and 16");
  expect_rule(family,
              "dtype=bf16,head_dim=64,head_dim_v=64,causal=0,pass=7,consumers=2,tile=64,stages=2,value_stages=2"
              ",pipelined=1,direct=0,staggered=0,persistent=1,stores=0",
              "persistent is 1: must be 0 with direct, with tile 64 and head_dim up to 64, and above 128");
  expect_rule(family, SM90("7", "1", "64", "2", "2", "1"), "consumers is 1: must be 2 with pass 7");
  expect_rule(family, SM90("1", "4", "64", "3", "3", "1"), "consumers is 4: must be 1 to 3");
  expect_rule(family, SM90("1", "2", "40", "3", "3", "1"), "tile is 40: must be a multiple of 16 from 16 to 256");
  expect_rule(family, SM90("1", "2", "64", "1", "3", "1"), "stages is 1: must be 1 to 4, from 2 with pipelined");
  expect_rule(family, SM90("6", "2", "48", "3", "1", "1"),
              "value_stages is 1: must be 1 to 4, from 2 with pipelined and dv");
  expect_rule(
      family, SM90("6", "2", "64", "3", "3", "1"),
      "tile is 64: with pass 6, head_dim 128, head_dim_v 128 and pipelined 1 a thread needs 224 registers; must "
      "be at most 208 with consumers 2");
  expect_rule(family, SM90("1", "2", "96", "4", "4", "1"),
              "tile is 96: with head_dim 128, head_dim_v 128, consumers 2, stages 4 and value_stages 4 a block needs "
              "263303 bytes of shared memory; must be at most 232448");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_backward_choose__dq_comes_first_and_delta_before_dk),
      cmocka_unit_test(test_backward_choose__hopper_has_a_family_of_its_own),
      cmocka_unit_test(test_backward_choose__dk_and_dv_of_large_heads_are_two_kernels),
      cmocka_unit_test(test_backward_choose__sums_dq_in_memory_where_that_is_faster),
      cmocka_unit_test(test_backward_choose__few_tiles_take_no_turns),
      cmocka_unit_test(test_backward_choose__blocks_are_persistent_where_that_is_faster),
      cmocka_unit_test(test_backward_choose__consumers_are_half_a_step_apart_where_that_is_faster),
      cmocka_unit_test(test_backward_choose__first_parts_are_stored_where_that_is_faster),
      cmocka_unit_test(test_backward_choose__few_blocks_of_grouped_heads_leave_dq_its_own_kernel),
      cmocka_unit_test(test_backward_choose__every_head_size_has_kernels),
      cmocka_unit_test(test_backward_choose__refuses_what_no_family_computes),
      cmocka_unit_test(test_flash_backward_rules__say_what_is_wrong),
      cmocka_unit_test(test_attention_backward_sm90_rules__say_what_is_wrong),
  };
  return cmocka_run_group_tests_name("backward_choose", tests, NULL, NULL);
}
