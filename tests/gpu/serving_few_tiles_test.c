/* Simple decoding calls with few tiles beside float64, which attention_serving_sm90 computes on Hopper by the kernel
 * with one_part: equal and different lengths, all numbers of rows, head sizes, pages, appended keys. Each case runs
 * several times: the same bits each time. Runs on a GPU, and on the emulator. */
#include <stdio.h>
#include <stdlib.h>

#include "gpu_fixture.h"
#include "serving_few_tiles.h"
#include "serving_run.h"
#include "support/test.h"

#ifdef KJIT_ON_EMULATOR
#include "emulator_fixture.h"

/* Of a call, more than a warp has lanes, or all that may be. */
#define MOST_SEQUENCES (getenv("KJIT_TEST_ALL_CONFIGS") ? 64 : 40)

/* With so many multiprocessors that each sequence of the first case, which has most, gets four blocks of threads. */
static void expect_with_room(void **state, const struct serving_case *cases, size_t count, size_t step) {
  struct gpu_fixture *fixture = gpu_require(state);
  kjit_runtime *const before = fixture->runtime;
  kjit_error error = {0};
  char count_text[16];
  snprintf(count_text, sizeof count_text, "%d", 2 * cases->batch);
  assert_int_equal(0, setenv("KJIT_EMULATOR_MULTIPROCESSORS", count_text, 1));
  fixture->runtime = emulator_runtime_anew(&error);
  expect_every(state, cases, count, step);
  kjit_runtime_destroy(fixture->runtime);
  fixture->runtime = before;
  assert_int_equal(0, setenv("KJIT_EMULATOR_MULTIPROCESSORS", "12", 1));
}
#else
#define MOST_SEQUENCES 64

static void expect_with_room(void **state, const struct serving_case *cases, size_t count, size_t step) {
  expect_every(state, cases, count, step);
}
#endif

static void test_serving_few_tiles__equal_lengths_are_right(void **state) {
  struct serving_case cases[6];
  for (int i = 0; i < 6; i++) {
    const int keys = i < 2 ? 1500 : i < 4 ? 70 : 256 * i;
    cases[i] = plain_case(2, (const int[]){1, 1}, (const int[]){keys, keys});
    cases[i].heads_kv = 1 + i % 3;
    if (i % 3 == 1) cases[i].cache = SERVING_DENSE;
    cases[i].layout = (enum serving_layout)(i / 2);
  }
  expect_every(state, cases, 6, STEP(2));
}

static void test_serving_few_tiles__different_lengths_are_right(void **state) {
  static const int pages[] = {16, 32, 64, 128, 16, 256};
  struct serving_case cases[6];
  for (int i = 0; i < 6; i++) {
    cases[i] = plain_case(3, (const int[]){1, 1, 1}, (const int[]){64, i % 2 ? 0 : 1100, i < 4 ? 257 : 1});
    cases[i].heads_kv = 1 + i % 2;
    cases[i].page_size = pages[i];
    cases[i].layout = (enum serving_layout)(i % 3);
    cases[i].causal = i % 2;
  }
  cases[5] = plain_case(1, (const int[]){1}, (const int[]){0});
  expect_every(state, cases, 6, 1);
}

/* Pages that no box of TMA fits are loaded row by row: appended keys, causal rows, rows without keys and head sizes
 * that end within a row of a box among them. */
static void test_serving_few_tiles__small_pages_are_right(void **state) {
  static const int pages[] = {1, 2, 4, 1, 1, 8, 2, 1}, sizes[][2] = {{128, 128}, {72, 40}};
  struct serving_case cases[8];
  for (int i = 0; i < 8; i++) {
    cases[i] =
        plain_case(3, (const int[]){1, 1, 1}, (const int[]){i / 2 % 2 ? 700 : 1, i < 4 ? 700 : 0, i < 2 ? 700 : 129});
    cases[i].heads_kv = 1 + i % 2;
    cases[i].page_size = pages[i];
    cases[i].layout = (enum serving_layout)(i % 3);
    cases[i].head_dim = sizes[i / 4][0];
    cases[i].head_dim_v = sizes[i / 4][1];
    cases[i].causal = i / 2 % 2;
    for (int b = 0; b < 3 && i >= 5; b++)
      cases[i].rows[b] = 3;
    for (int b = 0; b < 3 && i == 6; b++)
      cases[i].added[b] = 2;
    cases[i].append = i == 6;
  }
  expect_every(state, cases, 8, STEP(2));
}

/* As many sequences as tiles may be, and as a warp has lanes on a GPU. */
static void test_serving_few_tiles__many_sequences_are_right(void **state) {
  struct serving_case cases[2];
  for (int i = 0; i < 2; i++) {
    cases[i] = plain_case(1, (const int[]){1}, (const int[]){0});
    cases[i].batch = MULTIPROCESSORS / 2 < 32 ? MULTIPROCESSORS / 2 : 32;
    for (int b = 0; b < cases[i].batch; b++) {
      cases[i].rows[b] = 1;
      cases[i].keys[b] = i ? 130 : 7 + b * 37;
    }
  }
  expect_every(state, cases, 2, 1);
}

static void test_serving_few_tiles__all_numbers_of_rows_are_right(void **state) {
  static const int rows[] = {1, 1, 2, 3, 1, 2, 5, 9}, groups[] = {1, 17, 24, 7, 64, 32, 1, 1};
  struct serving_case cases[8];
  for (int i = 0; i < 8; i++) {
    cases[i] = plain_case(2, (const int[]){rows[i], rows[i]}, (const int[]){300, i / 2 % 2 ? 300 : 3});
    cases[i].group = groups[i];
    cases[i].causal = i != 6;
    if (i == 6) cases[i].window_right = 2;
  }
  expect_every(state, cases, 8, STEP(2));
}

/* More than 64 rows of a sequence: two warpgroups share K and V, and more than 128 rows make several tiles, the last of
 * which may have few rows. */
static void test_serving_few_tiles__many_rows_are_right(void **state) {
  static const int rows[] = {3, 16, 66, 5, 80}, groups[] = {24, 16, 1, 27, 2};
  struct serving_case cases[5];
  for (int i = 0; i < 5; i++) {
    const int batch = rows[i] * groups[i] > 128 ? 1 : 2;
    cases[i] = plain_case(batch, (const int[]){rows[i], rows[i]}, (const int[]){i % 3 ? 300 : 600, i == 2 ? 2 : 300});
    cases[i].group = groups[i];
    cases[i].causal = i != 4;
    if (i / 2 == 1) cases[i].cache = SERVING_DENSE;
    cases[i].layout = (enum serving_layout)(i % 3);
  }
  cases[3].append = true;
  cases[3].added[0] = rows[3];
  cases[4].window_right = 1;
  expect_every(state, cases, 5, STEP(2));
}

/* K and V of 8 bits: one to four warps along the keys, one part and several, one key head and two, NaN behind the last
 * key; rows of 64 bytes, and of both widths. */
static void test_serving_few_tiles__narrow_caches_are_right(void **state) {
  static const int rows[] = {3, 1, 1, 16, 1, 2}, groups[] = {5, 32, 1, 4, 4, 8}, sizes[] = {128, 64, 80, 96, 64, 48};
  struct serving_case cases[6];
  for (int i = 0; i < 6; i++) {
    cases[i] = plain_case(2, (const int[]){rows[i], rows[i]}, (const int[]){i % 2 ? 700 : 100, i == 2 ? 0 : 700});
    cases[i].narrow = true;
    cases[i].heads_kv = 1 + i % 2;
    cases[i].group = groups[i];
    cases[i].head_dim = cases[i].head_dim_v = sizes[i];
    cases[i].causal = rows[i] > 1;
    cases[i].dtype = i % 2 ? KJIT_FP16 : KJIT_BF16;
    if (i % 3 == 1) cases[i].cache = SERVING_DENSE;
    cases[i].layout = (enum serving_layout)(i % 3);
  }
  cases[3].append = true;
  cases[3].added[0] = cases[3].added[1] = 2;
  cases[4].page_size = 8;
  serving_set_lengths(&cases[4], 2, (const int[]){1, 1}, (const int[]){3000, 1777});
  cases[5].head_dim_v = 128;
  expect_every(state, cases, 6, 1);
}

static void test_serving_few_tiles__head_sizes_are_right(void **state) {
  static const int sizes[][2] = {{128, 128}, {40, 72}, {8, 128}, {128, 64}};
  struct serving_case cases[4];
  for (int i = 0; i < 4; i++) {
    cases[i] = plain_case(2, (const int[]){1, 1}, (const int[]){333, 333});
    cases[i].dtype = i % 2 ? KJIT_FP16 : KJIT_BF16;
    cases[i].head_dim = sizes[i][0];
    cases[i].head_dim_v = sizes[i][1];
  }
  expect_every(state, cases, 4, 1);
}

static void test_serving_few_tiles__appended_keys_are_right(void **state) {
  struct serving_case cases[3];
  for (int i = 0; i < 3; i++) {
    cases[i] = plain_case(2, (const int[]){2, 2}, (const int[]){i == 1 ? -1 : 127, 600});
    cases[i].append = cases[i].causal = true;
    cases[i].added[0] = cases[i].added[1] = 1 + i % 2;
    if (i == 2) cases[i].cache = SERVING_DENSE;
  }
  cases[1].added[0] = cases[1].added[1] = 1;
  expect_every(state, cases, 3, 1);
}

/* New keys in two blocks of keys, which may be of two blocks of threads; as many as one launch appends, and one more;
 * more of them than rows. */
static void test_serving_few_tiles__appended_keys_in_several_blocks_are_right(void **state) {
  struct serving_case cases[4];
  for (int i = 0; i < 4; i++) {
    cases[i] = plain_case(2, (const int[]){3, 3}, (const int[]){i == 1 ? 121 : 1015, i % 2 ? 0 : 61});
    cases[i].heads_kv = 1 + i % 2;
    cases[i].group = 5;
    cases[i].append = true;
    cases[i].causal = i != 2;
    cases[i].added[0] = cases[i].added[1] = i == 3 ? 17 : i == 2 ? 3 : 16;
    cases[i].head_dim = i ? 64 : 128;
    cases[i].layout = (enum serving_layout)(i % 3);
    if (i == 2) cases[i].cache = SERVING_DENSE;
  }
  expect_every(state, cases, 4, 1);
}

/* Rows and head sizes whose pieces are no whole rounds of a warp, both ways of pairing columns, part of the columns. */
static void test_serving_few_tiles__rotated_keys_are_right(void **state) {
  static const int rows[] = {1, 2, 4, 3, 1, 9}, groups[] = {4, 8, 16, 1, 40, 1}, columns[] = {128, 16, 64, 32, 128, 96};
  struct serving_case cases[6];
  for (int i = 0; i < 6; i++) {
    cases[i] = plain_case(2, (const int[]){rows[i], rows[i]}, (const int[]){i == 4 ? -1 : 125, 61 + 300 * i});
    cases[i].append = true;
    cases[i].causal = i % 3 != 2;
    cases[i].dtype = i % 2 ? KJIT_FP16 : KJIT_BF16;
    cases[i].head_dim = i == 3 ? 40 : 128;
    cases[i].group = groups[i];
    cases[i].added[0] = cases[i].added[1] = i == 5 ? 7 : i == 4 ? 1 : rows[i];
    cases[i].rotary_columns = columns[i];
    cases[i].interleaved = i / 2 % 2;
    cases[i].use_rotary_seqlens = i == 2;
    if (i == 1) cases[i].cache = SERVING_DENSE;
  }
  expect_every(state, cases, 6, STEP(2));
}

/* The kernel that loads row by row appends and rotates too; before those for many rows and for caches of 8 bits the
 * append pass runs, and rotary tables are other kernels'. */
static void test_serving_few_tiles__appending_to_every_cache_is_right(void **state) {
  static const int pages[] = {1, 4, 2, 16, 16, 16, 16};
  struct serving_case cases[7];
  for (int i = 0; i < 7; i++) {
    const int rows = i < 3 ? 1 + i : 2;
    cases[i] = plain_case(2, (const int[]){rows, rows}, (const int[]){i == 2 ? -1 : 127, 500});
    cases[i].page_size = pages[i];
    cases[i].group = i == 3 || i == 4 ? 40 : 4;
    cases[i].append = cases[i].causal = true;
    cases[i].added[0] = cases[i].added[1] = i == 1 ? 9 : rows;
    cases[i].narrow = i > 4;
    cases[i].rotary_columns = i == 1 || i == 4 || i == 5 ? 0 : 32;
    cases[i].layout = (enum serving_layout)(i % 3);
  }
  cases[2].added[0] = cases[2].added[1] = 1;
  expect_every(state, cases, 7, STEP(2));
}

/* Rotated rows in small pages beside parts of more blocks of keys than there are stages: nearly all rows of a tile, and
 * heads whose values take less memory than Q. */
static void test_serving_few_tiles__rotating_beside_loads_is_right(void **state) {
  struct serving_case cases[3];
  for (int i = 0; i < 3; i++) {
    cases[i] = plain_case(2, (const int[]){2, 2}, (const int[]){1100, 700});
    cases[i].page_size = 1 << i;
    cases[i].heads_kv = 3;
    cases[i].group = i ? 4 : 31;
    cases[i].append = cases[i].causal = true;
    cases[i].added[0] = cases[i].added[1] = 2;
    cases[i].rotary_columns = 64;
    cases[i].head_dim = 128;
    cases[i].head_dim_v = i == 1 ? 40 : 128;
  }
  expect_every(state, cases, 3, STEP(2));
}

/* With few multiprocessors left there are fewer blocks of threads than tiles: another kernel takes the call. */
static void test_serving_few_tiles__a_margin_of_multiprocessors_is_right(void **state) {
  struct serving_case cases[2];
  for (int i = 0; i < 2; i++) {
    cases[i] = plain_case(3, (const int[]){1, 1, 1}, (const int[]){300, 20, 90});
    cases[i].sm_margin = MULTIPROCESSORS - (i ? 8 : 1);
  }
  expect_every(state, cases, 2, 1);
}

/* More sequences than a warp has lanes, so that a lane has two. */
static void test_serving_few_tiles__two_sequences_of_a_lane_are_right(void **state) {
  struct serving_case cases[3];
  for (int i = 0; i < 3; i++) {
    cases[i] = plain_case(1, (const int[]){1}, (const int[]){0});
    cases[i].batch = i == 2 ? 33 : MOST_SEQUENCES;
    cases[i].page_size = i ? 16 : 1;
    for (int b = 0; b < cases[i].batch; b++) {
      cases[i].rows[b] = 1;
      cases[i].keys[b] = i < 2 ? (b * 37 + 5) % 131 * (b % 9 == 8 ? 4 : 1) : 130;
    }
  }
  expect_with_room(state, cases, 3, STEP(3));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_serving_few_tiles__equal_lengths_are_right),
      cmocka_unit_test(test_serving_few_tiles__different_lengths_are_right),
      cmocka_unit_test(test_serving_few_tiles__small_pages_are_right),
      cmocka_unit_test(test_serving_few_tiles__many_sequences_are_right),
      cmocka_unit_test(test_serving_few_tiles__all_numbers_of_rows_are_right),
      cmocka_unit_test(test_serving_few_tiles__many_rows_are_right),
      cmocka_unit_test(test_serving_few_tiles__narrow_caches_are_right),
      cmocka_unit_test(test_serving_few_tiles__head_sizes_are_right),
      cmocka_unit_test(test_serving_few_tiles__appended_keys_are_right),
      cmocka_unit_test(test_serving_few_tiles__appended_keys_in_several_blocks_are_right),
      cmocka_unit_test(test_serving_few_tiles__rotated_keys_are_right),
      cmocka_unit_test(test_serving_few_tiles__appending_to_every_cache_is_right),
      cmocka_unit_test(test_serving_few_tiles__rotating_beside_loads_is_right),
      cmocka_unit_test(test_serving_few_tiles__a_margin_of_multiprocessors_is_right),
      cmocka_unit_test(test_serving_few_tiles__two_sequences_of_a_lane_are_right),
  };
  cmocka_set_test_filter(getenv("KJIT_TEST_FILTER"));
  return cmocka_run_group_tests_name("serving attention of few tiles", tests, setup, teardown);
}
