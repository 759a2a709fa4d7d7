/* Serving attention beside float64: every argument by itself, then problems by chance. Runs on a GPU, and on the
 * emulator with fewer and shorter problems.
 *
 * On a GPU most of the time is compiling, one kernel on one core, so the cases are shared among processes
 * (gpu_shares.h). The tests that need the GPU in this process come last, because a process that has used it cannot fork
 * others that do. On the emulator one process runs all cases. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "attention_serving/params.h"
#include "gpu_fixture.h"
#include "serving_line.h"
#include "serving_run.h"
#include "serving_trial.h"
#include "support/test.h"

#ifdef KJIT_ON_EMULATOR
#include "emulator_fixture.h"
#define SETUP    emulator_setup
#define TEARDOWN gpu_teardown
#define ALONE    cmocka_unit_test
#define RANDOM   (getenv("KJIT_TEST_ALL_CONFIGS") ? 16 : 6)
#define LONGEST  150
/* Of cases that compile for seconds each, every n-th, or all. */
#define STEP(n) (getenv("KJIT_TEST_ALL_CONFIGS") ? 1 : (n))
#else
#define SETUP       NULL
#define TEARDOWN    NULL
/* A test that uses the GPU in this process. */
#define ALONE(test) cmocka_unit_test_setup_teardown(test, gpu_setup, gpu_teardown)
#define RANDOM      300
#define LONGEST     260
#define STEP(n)     1
#endif

static void expect_right(void **state, const struct serving_case *cases, size_t count) {
  expect_every(state, cases, count, 1);
}

static void test_serving__dense_decode_is_right(void **state) {
  struct serving_case cases[4];
  for (int i = 0; i < 4; i++) {
    cases[i] = serving_plain_case();
    serving_set_lengths(&cases[i], 3, (const int[]){1, 1, 1}, (const int[]){1, 130, 333});
    cases[i].heads_kv = 2;
    cases[i].group = i % 2 ? 5 : 1;
    cases[i].causal = i / 2;
  }
  expect_right(state, cases, 4);
}

static void test_serving__paged_decode_is_right(void **state) {
  static const int pages[] = {1, 3, 8, 16, 48, 64, 256};
  struct serving_case cases[14];
  for (int i = 0; i < 14; i++) {
    cases[i] = serving_plain_case();
    serving_set_lengths(&cases[i], 4, (const int[]){1, 1, 1, 1}, (const int[]){64, 0, 257, 16});
    cases[i].group = 4;
    cases[i].cache = SERVING_PAGED;
    cases[i].page_size = pages[i / 2];
    cases[i].layout = (enum serving_layout)(i % 3);
    cases[i].use_cache_index = i % 2;
  }
  expect_right(state, cases, 14);
}

/* Tiles that are alike are cut into equal parts, with a schedule and without. */
static void test_serving__alike_sequences_are_right(void **state) {
  struct serving_case cases[4];
  for (int i = 0; i < 4; i++) {
    cases[i] = serving_plain_case();
    serving_set_lengths(&cases[i], 2, (const int[]){1, 1}, i < 2 ? (const int[]){800, 800} : (const int[]){70, 70});
    cases[i].group = 4;
    cases[i].cache = SERVING_PAGED;
    cases[i].page_size = i % 2 ? 16 : 4;
    cases[i].schedule = i % 2;
    cases[i].workspace = true;
  }
  expect_right(state, cases, 4);
}

static void test_serving__ragged_prefill_is_right(void **state) {
  struct serving_case cases[6];
  for (int i = 0; i < 6; i++) {
    cases[i] = serving_plain_case();
    serving_set_lengths(&cases[i], 5, (const int[]){100, 0, 1, 37, 64}, (const int[]){100, 17, 65, 20, 0});
    cases[i].dtype = i % 2 ? KJIT_BF16 : KJIT_FP16;
    cases[i].cache = i < 4 ? SERVING_RAGGED : SERVING_PAGED;
    cases[i].ragged_q = true;
    cases[i].causal = i % 2;
    cases[i].group = 1 + i % 3;
    cases[i].use_seqused_q = i >= 3;
  }
  expect_right(state, cases, 6);
}

static void test_serving__head_sizes_are_right(void **state) {
  static const int sizes[][2] = {{8, 8}, {72, 72}, {128, 128}, {192, 128}, {40, 256}, {256, 256}};
  struct serving_case cases[12];
  for (int i = 0; i < 12; i++) {
    cases[i] = serving_plain_case();
    serving_set_lengths(&cases[i], 2, i % 2 ? (const int[]){1, 1} : (const int[]){70, 33}, (const int[]){150, 90});
    cases[i].head_dim = sizes[i / 2][0];
    cases[i].head_dim_v = sizes[i / 2][1];
    cases[i].cache = i % 4 < 2 ? SERVING_PAGED : SERVING_DENSE;
    cases[i].group = 2;
    cases[i].causal = true;
  }
  expect_every(state, cases, 12, STEP(3));
}

static void test_serving__windows_chunks_caps_and_sinks_are_right(void **state) {
  struct serving_case cases[12];
  for (int i = 0; i < 12; i++) {
    struct serving_case *c = &cases[i];
    *c = serving_plain_case();
    serving_set_lengths(c, 3, i % 2 ? (const int[]){1, 2, 1} : (const int[]){120, 30, 5}, (const int[]){200, 30, 3});
    c->ragged_q = true;
    c->group = 2;
    c->cache = i % 3 ? SERVING_DENSE : SERVING_PAGED;
    c->causal = i % 4 != 3;
    if (i < 4) c->window_left = 7 + 30 * i;
    if (i == 3) c->window_right = 11;
    if (i >= 4 && i < 7) c->chunk = 13 * (i - 3);
    if (i >= 6 && i < 9) c->softcap = 3;
    if (i >= 8) c->sinks = i % 2 ? KJIT_FP32 : c->dtype;
  }
  expect_right(state, cases, 12);
}

static void test_serving__append_and_rotary_are_right(void **state) {
  struct serving_case cases[12];
  for (int i = 0; i < 12; i++) {
    struct serving_case *c = &cases[i];
    *c = serving_plain_case();
    serving_set_lengths(c, 4, (const int[]){2, 2, 2, 2}, (const int[]){60, 0, 127, 33});
    c->cache = i % 2 ? SERVING_PAGED : SERVING_DENSE;
    c->append = true;
    for (int b = 0; b < 4; b++)
      c->added[b] = i % 3 ? 2 : b;
    c->ragged_new = i % 3 == 0;
    c->group = 2;
    c->causal = i % 4 < 2;
    c->rotary_columns = i < 2 ? 0 : i < 7 ? 32 : 64;
    c->interleaved = i % 5 < 2;
    c->use_rotary_seqlens = i == 5;
    c->use_leftpad = i >= 9;
    c->leftpad[2] = i >= 9 ? 5 : 0;
  }
  cases[1].keys[1] = -1;
  for (int b = 0; b < 4; b++)
    cases[1].added[b] = 1;
  expect_right(state, cases, 12);
}

static void test_serving__splits_are_right(void **state) {
  struct serving_case cases[8];
  for (int i = 0; i < 8; i++) {
    struct serving_case *c = &cases[i];
    *c = serving_plain_case();
    serving_set_lengths(c, 2, i % 2 ? (const int[]){40, 3} : (const int[]){1, 1}, (const int[]){900, 77});
    c->ragged_q = true;
    c->causal = true;
    c->group = 3;
    c->num_splits = i / 2;
    c->schedule = i % 4 < 2;
    c->sinks = i == 6 ? KJIT_FP32 : 0;
  }
  expect_right(state, cases, 8);
}

/* A schedule is made for tiles of as many rows as the kernel has that reads it: 64 and 16 of attention_serving, 64 of
 * attention_serving_sm90. The last two are chosen for one row of a sequence, because max_seqlen_q is too small. */
static void test_serving__schedules_of_tiles_of_all_sizes_are_right(void **state) {
  struct serving_case cases[3];
  for (int i = 0; i < 3; i++) {
    struct serving_case *c = &cases[i];
    *c = serving_plain_case();
    serving_set_lengths(c, 2, (const int[]){70, 3}, (const int[]){900, 150});
    c->causal = c->schedule = true;
    c->ragged_q = i != 1;
    c->group = 2;
    c->use_leftpad = i == 0;
    c->leftpad[0] = i == 0 ? 5 : 0;
    c->max_rows = i ? 1 : 0;
  }
  cases[1].cache = SERVING_PAGED;
  cases[1].page_size = 4;
  cases[1].rows[0] = cases[1].rows[1] = 25;
  expect_right(state, cases, 3);
}

/* A cache of e4m3, of every shape. Scales of q by which a row in bf16 does not fit fp16 as it is. */
static void test_serving__e4m3_cache_is_right(void **state) {
  static const int sizes[][2] = {{64, 64}, {128, 128}, {80, 144}, {256, 256}};
  struct serving_case cases[16];
  for (int i = 0; i < 16; i++) {
    struct serving_case *c = &cases[i];
    *c = serving_plain_case();
    c->narrow = true;
    serving_set_lengths(c, 3, (const int[]){1, 1, 1}, (const int[]){64, i % 4 == 1 ? 0 : 257, i < 8 ? 257 : 31});
    c->dtype = i % 2 ? KJIT_BF16 : KJIT_FP16;
    c->head_dim = sizes[i % 4][0];
    c->head_dim_v = sizes[i % 4][1];
    c->group = i < 4 ? 4 : i < 8 ? 20 : i < 12 ? 40 : 3; /* tiles of 16, 32 and 64 rows */
    c->cache = i % 3 == 2 ? SERVING_DENSE : SERVING_PAGED;
    c->page_size = i % 5 == 4 ? 3 : 16;
    c->layout = (enum serving_layout)(i % 3);
    c->causal = i % 2;
    c->softcap = i == 6 ? 5 : 0;
    c->sinks = i == 7 ? KJIT_FP32 : 0;
    c->window_left = i == 10 ? 40 : -1;
    c->schedule = i == 11;
    c->append = i >= 12;
    for (int b = 0; b < 3; b++)
      c->added[b] = i >= 12 ? 1 : 0;
    c->rotary_columns = i >= 14 ? 32 : 0;
    c->use_leftpad = i == 13;
    c->leftpad[2] = i == 13 ? 5 : 0;
  }
  cases[1].query_size = cases[5].query_size = 1e9f; /* beyond fp16 */
  cases[1].scale = cases[5].scale = 1e-10f;
  cases[3].query_size = 1e-9f;
  cases[3].scale = 1e8f;
  cases[9].rows[0] = cases[9].rows[2] = 70;
  cases[9].ragged_q = true;
  expect_every(state, cases, 16, STEP(5)); /* a tile and a head size of each kind */
}

static void test_serving__e4m3_cache_of_wide_heads_behind_padding_is_right(void **state) {
  struct serving_case cases[SERVING_WIDE_NARROW_CASES];
  serving_wide_narrow_cases(cases);
  expect_every(state, cases, SERVING_WIDE_NARROW_CASES, STEP(4)); /* a tile and a head size of each kind */
}

static void test_serving__schedule_of_many_sequences_follows_the_line(void **state) {
  serving_expect_line(gpu_require(state), 2500); /* more than the plan pass has threads */
}

static void test_serving__schedule_of_more_sequences_than_are_kept_follows_the_line(void **state) {
  serving_expect_line(gpu_require(state), SERVING_PLAN_THREADS * SERVING_PLAN_KEPT + 900);
}

static void test_serving__lengths_beyond_the_cache_are_cut(void **state) {
  serving_expect_cut_lengths(gpu_require(state));
}

/* More packed rows than a tile of the decoding kernels has: on Hopper another family computes these. */
static void test_serving__prefill_is_right(void **state) {
  struct serving_case cases[6];
  for (int i = 0; i < 6; i++) {
    struct serving_case *c = &cases[i];
    *c = serving_plain_case();
    serving_set_lengths(c, 4, (const int[]){70, 0, 1, 33}, (const int[]){70, 9, 140, 0});
    c->dtype = i % 2 ? KJIT_BF16 : KJIT_FP16;
    c->group = 2;
    c->ragged_q = i != 2;
    c->causal = i != 2;
    c->cache = i == 0 || i == 5 ? SERVING_RAGGED : i == 2 ? SERVING_DENSE : SERVING_PAGED;
  }
  cases[0].head_dim = cases[0].head_dim_v = 128; /* two consumers, and rows that no warp has */
  cases[1].window_left = 50;                     /* blocks in front of what all rows see */
  cases[1].use_cache_index = true;
  cases[1].head_dim = cases[1].head_dim_v = 128; /* boxes of both bands */
  cases[1].keys[0] = 300;
  cases[2].use_seqused_q = true;
  cases[3].page_size = 8;
  cases[3].layout = SERVING_HND;
  cases[3].batch = 40; /* more sequences than a warp has lanes, of which the longest is not the first */
  for (int b = 0; b < cases[3].batch; b++) {
    cases[3].rows[b] = b % 3;
    cases[3].keys[b] = b % 5 + b % 3;
  }
  cases[3].rows[35] = cases[3].keys[35] = 90;
  cases[4].page_size = 64;
  cases[4].layout = SERVING_KV_TOGETHER;
  cases[4].rows[3] = 210; /* several tiles */
  cases[4].keys[3] = 290;
  cases[5].head_dim = cases[5].head_dim_v = 128;
  cases[5].keys[2] = 60; /* short sequences that attend to little more than themselves */
  expect_right(state, cases, 6);
}

/* The same from a cache of e4m3, in pages of any size and without. */
static void test_serving__prefill_from_e4m3_is_right(void **state) {
  struct serving_case cases[SERVING_NARROW_CASES];
  serving_narrow_cases(cases);
  expect_every(state, cases, SERVING_NARROW_CASES, STEP(4));
}

/* Rows and keys in front of all tensors are nobody's; by the kernels for few rows, for many rows and for any device. */
static void test_serving__offsets_below_0_are_nobodys(void **state) {
  struct serving_case cases[3];
  for (int i = 0; i < 3; i++) {
    cases[i] = serving_plain_case();
    serving_set_lengths(&cases[i], 3, (const int[]){0, i == 1 ? 90 : 2, 1}, (const int[]){0, 100, 33});
    cases[i].cache = i == 2 ? SERVING_DENSE : SERVING_RAGGED;
    cases[i].ragged_q = cases[i].begins_below_0 = true;
    cases[i].use_leftpad = i == 2;
  }
  expect_right(state, cases, 3);
}

static void test_serving__mixed_and_padded_batches_are_right(void **state) {
  struct serving_case mixed[SERVING_MIXED_CASES], padded[SERVING_PADDED_CASES];
  serving_mixed_cases(mixed);
  serving_padded_cases(padded);
  expect_every(state, mixed, SERVING_MIXED_CASES, STEP(2));
  expect_every(state, padded, SERVING_PADDED_CASES, STEP(2));
}

/* Copy the rows of the first sequence, which lie in front. */
static void read_first_sequence(const struct serving_trial *trial, uint16_t *out, size_t bytes, kjit_error *error) {
  assert_status(KJIT_OK, card_read(trial->card, out, trial->memory[SERVING_O].card.address, bytes, error), error);
}

/* Large scores make running maxima rise often, which a warp's rows do together; the last rows have a warp that they do
 * not fill. */
static void test_serving__rows_do_not_depend_on_their_neighbours(void **state) {
  enum { ROWS = 65, HEADS_KV = 4, BYTES = ROWS * HEADS_KV * 2 * 64 * 2 };
  struct gpu_fixture *fixture = gpu_require(state);
  uint16_t found[2][BYTES / 2];
  for (int i = 0; i < 2; i++) {
    struct serving_case c = serving_plain_case();
    struct serving_trial trial;
    kjit_error error = {0};
    serving_set_lengths(&c, i ? 2 : 1, (const int[]){ROWS, 70}, (const int[]){500, 80});
    c.heads_kv = HEADS_KV;
    c.group = 2;
    c.cache = SERVING_RAGGED;
    c.ragged_q = c.causal = true;
    c.num_splits = 1;
    c.scale = 4;
    assert_status(KJIT_OK, serving_trial_create(&trial, fixture->runtime, &fixture->card, &c, &error), &error);
    assert_status(KJIT_OK, serving_trial_reset(&trial, &error), &error);
    assert_status(KJIT_OK, serving_trial_enqueue(&trial, fixture->card.stream, &error), &error);
    assert_status(KJIT_OK, card_synchronize(&fixture->card, fixture->card.stream, &error), &error);
    read_first_sequence(&trial, found[i], BYTES, &error);
    serving_trial_destroy(&trial);
  }
  fixture->cases_run++;
  assert_memory_equal(found[0], found[1], BYTES);
}

static void test_serving__problems_by_chance_are_right(void **state) {
  const char *wanted = getenv("KJIT_SERVING_CASES");
  const size_t count = wanted ? (size_t)strtoul(wanted, NULL, 10) : RANDOM;
  struct random random = {random_fresh_seed()};
  struct serving_case *const cases = calloc(count ? count : 1, sizeof *cases);
  assert_non_null(cases);
  print_message("repeat with KJIT_SEED=0x%" PRIx64 "\n", random.state);
  for (size_t i = 0; i < count; i++)
    cases[i] = serving_random_case(&random, LONGEST);
  expect_right(state, cases, count);
  free(cases);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_serving__dense_decode_is_right),
      cmocka_unit_test(test_serving__paged_decode_is_right),
      cmocka_unit_test(test_serving__alike_sequences_are_right),
      cmocka_unit_test(test_serving__ragged_prefill_is_right),
      cmocka_unit_test(test_serving__head_sizes_are_right),
      cmocka_unit_test(test_serving__windows_chunks_caps_and_sinks_are_right),
      cmocka_unit_test(test_serving__append_and_rotary_are_right),
      cmocka_unit_test(test_serving__splits_are_right),
      cmocka_unit_test(test_serving__schedules_of_tiles_of_all_sizes_are_right),
      cmocka_unit_test(test_serving__e4m3_cache_is_right),
      cmocka_unit_test(test_serving__e4m3_cache_of_wide_heads_behind_padding_is_right),
      cmocka_unit_test(test_serving__prefill_is_right),
      cmocka_unit_test(test_serving__prefill_from_e4m3_is_right),
      cmocka_unit_test(test_serving__mixed_and_padded_batches_are_right),
      cmocka_unit_test(test_serving__offsets_below_0_are_nobodys),
      cmocka_unit_test(test_serving__problems_by_chance_are_right),
      ALONE(test_serving__schedule_of_many_sequences_follows_the_line),
      ALONE(test_serving__schedule_of_more_sequences_than_are_kept_follows_the_line),
      ALONE(test_serving__lengths_beyond_the_cache_are_cut),
      ALONE(test_serving__rows_do_not_depend_on_their_neighbours),
  };
  cmocka_set_test_filter(getenv("KJIT_TEST_FILTER"));
  return cmocka_run_group_tests_name("serving attention", tests, SETUP, TEARDOWN);
}
