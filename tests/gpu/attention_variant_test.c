/* Attention variants on a GPU beside float64: masks that are row intervals and masks that are judged, score functions,
 * sinks, given blocks, plain members, and gradients; on the kernel that the library chooses, on flash_forward's and on
 * attention_sm90's with two pairs of consumers, which the library chooses for long lists alone.
 * Each case compiles kernels of its own, so the cases are shared among processes (gpu_shares.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kjit/attention_sm90.h>

#include "gpu_shares.h"
#include "support/test.h"
#include "variant_gradients.h"
#include "variant_trial.h"

static const struct variant_shape shapes[] = {
    {1, 8, 8, 200, 333, 64, true},   {2, 4, 1, 65, 130, 64, false}, {1, 8, 2, 1, 1500, 64, true},
    {1, 8, 8, 333, 777, 128, false}, {1, 8, 1, 3, 2100, 128, true}, {1, 8, 8, 190, 450, 256, true},
    {1, 2, 2, 130, 300, 40, false},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* What flash_forward would run on a card of sm_80. */
static kjit_status flash_config(const struct gpu_fixture *fixture, const struct variant_shape *shape,
                                kjit_config *config, kjit_error *error) {
  kjit_attention_problem problem = kjit_attention_problem_default();
  problem.dtype = shape->bf16 ? KJIT_BF16 : KJIT_FP16;
  problem.heads_q = shape->heads;
  problem.heads_kv = shape->heads_kv;
  problem.seq_q = shape->seq_q;
  problem.seq_kv = shape->seq_kv;
  problem.head_dim = shape->head_dim;
  return kjit_attention_choose(fixture->runtime, &problem, "sm_80", config, NULL, error);
}

/* attention_sm90 with two pairs of consumers. */
static kjit_status pairs_config(const struct variant_case *one, const struct variant_shape *shape, kjit_config *config,
                                kjit_error *error) {
  char text[256];
  snprintf(text, sizeof text,
           "dtype=%s,head_dim=%d,head_dim_v=%d,causal=%d,consumers=4,tile_n=64,stages=4,q_buffers=2,o_chunks=0,"
           "ping_pong=1,rescale_slack=15,packed=1,split=0",
           shape->bf16 ? "bf16" : "fp16", shape->head_dim, shape->head_dim, one->causal);
  return kjit_config_parse(kjit_family_find("attention_sm90"), text, config, error);
}

/* Which kernel computes a case: the library's choice, or one of a config. */
enum way { CHOSEN, FLASH, PAIRS };
static const char *const way_names[] = {"", " flash_forward", " two pairs of consumers"};

/* A case on a shape. */
struct item {
  const struct variant_case *one;
  const struct variant_shape *shape;
  enum way way;
};

enum { ITEMS_MAX = 2048 };
static struct item items[ITEMS_MAX]; /* filled before the processes are forked */
static size_t item_count;

static bool run(struct gpu_fixture *fixture, size_t index) {
  const struct item *item = &items[index];
  const struct variant_shape *shape = item->shape;
  struct variant_report report = {0};
  kjit_config config;
  kjit_error error = {0};
  if (item->way == PAIRS && strcmp(fixture->card.arch, "sm_90") != 0) return true; /* Hopper's alone */
  kjit_status status = item->way == FLASH   ? flash_config(fixture, shape, &config, &error)
                       : item->way == PAIRS ? pairs_config(item->one, shape, &config, &error)
                                            : KJIT_OK;
  if (status == KJIT_OK)
    status = variant_trial_run(&fixture->card, fixture->runtime, item->one, shape, item->way == CHOSEN ? NULL : &config,
                               7, &report, &error);
  if (status == KJIT_OK && report.passed) return true;
  print_error("%s B%d H%d/%d Sq%d Skv%d D%d%s: %s\n", item->one->name, shape->batch, shape->heads, shape->heads_kv,
              shape->seq_q, shape->seq_kv, shape->head_dim, way_names[item->way],
              status == KJIT_OK ? report.why : error.message);
  return false;
}

enum kind { MASKS, SCORES, OTHERS };

static enum kind kind_of(const struct variant_case *one) {
  if (one->sinks || one->set || one->block) return OTHERS;
  return one->score ? SCORES : MASKS;
}

static void add(const struct variant_case *one, const struct variant_shape *shape, enum way way) {
  assert_true(item_count < ITEMS_MAX);
  items[item_count++] = (struct item){one, shape, way};
}

/* The cases of a kind, each on two shapes and every other one on flash_forward's kernel too; with
 * KJIT_TEST_ALL_CONFIGS=1 on all shapes and both. */
static void run_cases(enum kind kind) {
  const bool all = getenv("KJIT_TEST_ALL_CONFIGS") != NULL;
  item_count = 0;
  for (size_t i = 0; i < variant_case_count; i++) {
    if (kind_of(&variant_cases[i]) != kind) continue;
    for (size_t j = 0; j < SHAPES; j++) {
      if (!all && j != i % SHAPES && j != (i + 3) % SHAPES) continue;
      add(&variant_cases[i], &shapes[j], CHOSEN);
      if (all || (i % 2 == 0 && j == i % SHAPES)) add(&variant_cases[i], &shapes[j], FLASH);
    }
  }
  assert_int_equal(0, gpu_share(item_count, run));
}

static void test_attention_variant__masks_are_right(void **state) {
  (void)state;
  run_cases(MASKS);
}

static void test_attention_variant__scores_are_right(void **state) {
  (void)state;
  run_cases(SCORES);
}

static void test_attention_variant__sinks_members_and_blocks_are_right(void **state) {
  (void)state;
  run_cases(OTHERS);
}

/* Masks on ranges and row intervals, on a problem most of whose blocks nobody sees. */
static void test_attention_variant__nan_in_unseen_blocks_does_not_spread(void **state) {
  static const char *const names[] = {"window", "prefix", "streaming", "document", "dilated"};
  static struct variant_case hiding[sizeof names / sizeof *names];
  static const struct variant_shape shape = {2, 8, 8, 150, 2000, 64, true};
  (void)state;
  item_count = 0;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    hiding[i] = *variant_case_named(names[i]);
    hiding[i].hides_nan = true;
    add(&hiding[i], &shape, CHOSEN);
    add(&hiding[i], &shape, FLASH);
  }
  assert_int_equal(0, gpu_share(item_count, run));
}

/* More tiles than a card has pairs, fewer, and heads of fewer columns; lists, of which many tiles share one, the
 * caller's blocks, kept ones, bounds of rows, and score functions. */
static void test_attention_variant__two_pairs_of_consumers_are_right(void **state) {
  static const char *const names[] = {"document",    "causal_document", "blocks", "blocks_document",
                                      "kept_blocks", "window",          "alibi"};
  static const struct variant_shape many = {2, 68, 17, 130, 300, 64, true}, few = {1, 8, 8, 300, 1500, 64, false},
                                    narrow = {2, 9, 3, 500, 500, 40, true};
  (void)state;
  item_count = 0;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    add(variant_case_named(names[i]), &many, PAIRS);
    add(variant_case_named(names[i]), i % 2 ? &few : &narrow, PAIRS);
  }
  assert_int_equal(0, gpu_share(item_count, run));
}

static const struct variant_gradient_shape sizes[] = {{1, 2, 1, 40, 70, 32, NULL},     {2, 2, 2, 150, 130, 64, NULL},
                                                      {1, 2, 1, 130, 200, 128, NULL},  {1, 1, 1, 100, 190, 256, NULL},
                                                      {1, 3, 1, 200, 100, 72, NULL},   {1, 2, 2, 90, 150, 192, NULL},
                                                      {2, 2, 1, 100, 130, 64, "sm_80"}};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Item `index` is one case on one of the sizes, of which every third is taken. */
static bool run_gradients(struct gpu_fixture *fixture, size_t index) {
  const struct variant_gradient_case *one = &variant_gradient_cases[index / SIZES];
  const struct variant_gradient_shape *size = &sizes[index % SIZES];
  struct variant_gradient_report report;
  kjit_error error = {0};
  if (!getenv("KJIT_TEST_ALL_CONFIGS") && !size->arch && index % SIZES % 3 != index / SIZES % 3) return true;
  const kjit_status status = variant_gradients_run(&fixture->card, fixture->runtime, one, size, &report, &error);
  if (status == KJIT_OK && report.passed) return true;
  print_error("%s D%d Sq%d Skv%d %s: errors %.2g %.2g %.2g of the largest value; %s bits %s\n", one->name,
              size->head_dim, size->seq_q, size->seq_kv, size->arch ? size->arch : "", report.error[0], report.error[1],
              report.error[2], report.same_bits ? "the same" : "other", status == KJIT_OK ? "" : error.message);
  return false;
}

/* Each case with what the library chooses, on two shapes of six, and with flash_backward's kernels on one; with
 * KJIT_TEST_ALL_CONFIGS=1 on all shapes. */
static void test_attention_variant__gradients_are_right_and_the_same_bits(void **state) {
  (void)state;
  assert_int_equal(0, gpu_share(variant_gradient_case_count * SIZES, run_gradients));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_attention_variant__masks_are_right),
      cmocka_unit_test(test_attention_variant__scores_are_right),
      cmocka_unit_test(test_attention_variant__sinks_members_and_blocks_are_right),
      cmocka_unit_test(test_attention_variant__nan_in_unseen_blocks_does_not_spread),
      cmocka_unit_test(test_attention_variant__two_pairs_of_consumers_are_right),
      cmocka_unit_test(test_attention_variant__gradients_are_right_and_the_same_bits),
  };
  cmocka_set_test_filter(getenv("KJIT_TEST_FILTER"));
  return cmocka_run_group_tests_name("attention variants on a GPU", tests, NULL, NULL);
}
