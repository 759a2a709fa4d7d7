/* Decoding calls with more tiles than few beside float64, which attention_serving_sm90 computes on Hopper by the
 * kernels with runs: a block of threads ends a tile that another has begun, has whole ones, and begins one. Tiles of 64
 * and of 128 rows, small pages, key heads beside each other, caches of e4m3. Each case runs several times: the same
 * bits each time. Runs on a GPU, and on the emulator. */
#include <stdlib.h>

#include "gpu_fixture.h"
#include "serving_few_tiles.h"
#include "serving_run.h"
#include "support/test.h"

/* What the cases of large tiles differ in, whatever their rows: groups, masks, caches, layouts and head sizes. */
static void vary(struct serving_case *c, int number) {
  c->group = number % 2 ? 7 : 10;
  c->causal = number != 2;
  if (number == 1) c->cache = SERVING_DENSE;
  c->layout = (enum serving_layout)(number % 3);
  c->head_dim = c->head_dim_v = number == 3 ? 64 : number == 2 ? 40 : 128;
}

/* More tiles of 128 rows than multiprocessors can share. Sequences without keys, sequences that are all alike, and two
 * tiles of a head. */
static void test_serving_runs__tiles_of_many_rows_are_right(void **state) {
  static const int rows[] = {11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11};
  static const int twenty[] = {20, 20, 20, 20, 20};
  static const int keys[][11] = {{3000, 0, 130, 260, 1, 90, 128, 7, 300, 0, 500},
                                 {500, 500, 500, 500, 500, 500, 500, 500, 500, 500, 500},
                                 {128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128},
                                 {5, 1, 0, 129, 128, 40, 16, 3, 700, 2, 2600},
                                 {1700, 0, 130, 900, 1}};
  struct serving_case cases[5];
  for (int i = 0; i < 5; i++) {
    cases[i] = i == 4 ? plain_case(5, twenty, keys[i]) : plain_case(11, rows, keys[i]);
    cases[i].heads_kv = i == 4 ? MULTIPROCESSORS / 12 : MULTIPROCESSORS / 11;
    vary(&cases[i], i);
  }
  expect_every(state, cases, 5, STEP(3));
}

/* The same with few rows. Sequences without keys, sequences that are all alike, and several tiles of a head. */
static void test_serving_runs__tiles_of_few_rows_are_right(void **state) {
  static const int keys[][7] = {{1700, 0, 130, 900, 1, 700, 2000},
                                {500, 500, 500, 500, 500, 500, 500},
                                {128, 128, 128, 128, 128, 128, 128},
                                {3000, 5, 600, 0, 128, 129, 1280}};
  struct serving_case cases[5];
  for (int i = 0; i < 5; i++) {
    const int batch = i == 3 ? 7 : 5, rows = i == 4 ? 6 : 1 + i % 2;
    cases[i] = plain_case(batch, (const int[]){rows, rows, rows, rows, rows, rows, rows}, keys[i % 4]);
    cases[i].heads_kv = MULTIPROCESSORS / 6 + i;
    cases[i].page_size = i == 4 ? 16 : 64 << i % 2;
    vary(&cases[i], i);
  }
  expect_every(state, cases, 5, STEP(3));
}

/* The same in small pages, a box of which has all columns of a head, or of one position, whose rows are loaded one by
 * one. Those of 2 and 4 positions are another kernel's. */
static void test_serving_runs__small_pages_are_right(void **state) {
  static const int keys[][7] = {
      {1700, 0, 130, 900, 1, 700, 2000}, {500, 500, 500, 500, 500, 500, 500}, {3000, 5, 600, 0, 128, 129, 1280}};
  static const int pages[] = {1, 16, 8, 1, 32, 2, 64, 1, 16}, sizes[] = {128, 128, 128, 72, 128, 40, 128, 96, 64};
  struct serving_case cases[9];
  for (int i = 0; i < 9; i++) {
    const int rows = i == 6 || i == 7 ? 6 : 1 + i % 2;
    cases[i] = plain_case(7, (const int[]){rows, rows, rows, rows, rows, rows, rows}, keys[i % 3]);
    cases[i].heads_kv = MULTIPROCESSORS / 6 + i % 3;
    cases[i].page_size = pages[i];
    cases[i].group = i % 2 ? 7 : 4;
    cases[i].causal = i % 4 != 2;
    cases[i].dtype = i % 5 == 4 ? KJIT_FP16 : KJIT_BF16;
    cases[i].layout = (enum serving_layout)(i % 3);
    cases[i].head_dim = cases[i].head_dim_v = sizes[i];
  }
  expect_every(state, cases, 9, STEP(4));
}

/* Key heads that divide the grid, so that neighbouring blocks of threads have those of one position: eight and four of
 * them with tiles of 64 rows, four with tiles of 128. */
static void test_serving_runs__neighbouring_heads_are_right(void **state) {
  static const int heads[] = {8, 12, 8, 4, 4}, keys[][4] = {{1700, 0, 130, 2000}, {500, 500, 500, 500}};
  struct serving_case cases[5];
  for (int i = 0; i < 5; i++) {
    const int rows = i < 3 ? 1 + i : 10;
    cases[i] = plain_case(i < 3 ? 4 : 3, (const int[]){rows, rows, rows, rows}, keys[i % 2]);
    cases[i].heads_kv = MULTIPROCESSORS / 12 * heads[i];
    cases[i].page_size = 64;
    cases[i].group = i < 3 ? 3 : 9;
    cases[i].causal = i != 2;
    cases[i].dtype = i % 2 ? KJIT_FP16 : KJIT_BF16;
    cases[i].layout = (enum serving_layout)(i % 3);
  }
  expect_every(state, cases, 5, STEP(2));
}

/* K and V of 8 bits; with heads of more than 128 columns, few tiles too. Sequences without keys, keys that end
 * within a block, all alike, appended keys; runs of more blocks than there are stages, in pages of 8. */
static void test_serving_runs__narrow_caches_are_right(void **state) {
  static const int keys[][7] = {{1700, 0, 130, 900, 1, 700, 2000}, {500, 500, 500, 500, 500}, {700, 100, 3}};
  static const int sizes[][2] = {{128, 128}, {256, 256}, {192, 128}, {64, 64}, {256, 240}, {144, 256}, {48, 64}};
  static const int groups[] = {4, 16, 20, 33, 5, 16, 4}, rows[] = {1, 1, 1, 1, 3, 4, 1};
  struct serving_case cases[7];
  for (int i = 0; i < 7; i++) {
    const int batch = i < 4 ? i % 2 ? 5 : 7 : 3, n = rows[i];
    cases[i] = plain_case(batch, (const int[]){n, n, n, n, n, n, n}, keys[i < 4 ? i % 2 : 2]);
    cases[i].heads_kv = i < 4 ? MULTIPROCESSORS / 4 : 1;
    cases[i].narrow = true;
    cases[i].group = groups[i];
    cases[i].head_dim = sizes[i][0];
    cases[i].head_dim_v = sizes[i][1];
    cases[i].causal = n > 1;
    cases[i].dtype = i % 2 ? KJIT_FP16 : KJIT_BF16;
    if (i == 1) cases[i].cache = SERVING_DENSE;
    cases[i].layout = (enum serving_layout)(i % 3);
  }
  cases[5].append = true;
  cases[5].added[0] = cases[5].added[1] = cases[5].added[2] = 4;
  serving_set_lengths(&cases[6], 3, (const int[]){1, 1, 1}, (const int[]){4000, 100, 1777});
  cases[6].heads_kv = MULTIPROCESSORS / 2;
  cases[6].page_size = 8;
  expect_every(state, cases, 7, STEP(2));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_serving_runs__tiles_of_many_rows_are_right),
      cmocka_unit_test(test_serving_runs__tiles_of_few_rows_are_right),
      cmocka_unit_test(test_serving_runs__small_pages_are_right),
      cmocka_unit_test(test_serving_runs__neighbouring_heads_are_right),
      cmocka_unit_test(test_serving_runs__narrow_caches_are_right),
  };
  cmocka_set_test_filter(getenv("KJIT_TEST_FILTER"));
  return cmocka_run_group_tests_name("serving attention of more tiles", tests, setup, teardown);
}
