/* attention_sm90 on the emulator beside float64: masks, groups of heads, head sizes, lengths, layouts. */
#include "attention_cases.h"

#include "emulator_fixture.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/test.h"

struct size {
  int64_t head_dim, head_dim_v;
};

/* Each is one kernel a mask. */
static const struct size sizes[] = {{64, 64}, {72, 72}, {128, 128}, {192, 128}, {256, 256}};

/* Query heads, key heads: each with its own, three to one, all to one. */
static const int64_t heads[][2] = {{2, 2}, {3, 1}, {4, 2}};

/* At a scale of 2 the largest score moves so far that the output is rescaled. */
static const struct {
  int64_t batch, seq_q, seq_kv;
  double scale;
  enum problem_layout layout;
} lengths[] = {{1, 1, 1, 0, LAYOUT_BSHD},
               {2, 131, 67, 0, LAYOUT_BHSD},
               {1, 200, 333, 2, LAYOUT_PADDED},
               {1, 70, 259, 0, LAYOUT_SHARED_KV}};

enum { LENGTHS = sizeof lengths / sizeof *lengths, HEADS = sizeof heads / sizeof *heads };

static void run_size(void **state, const struct size *size) {
  struct gpu_fixture *fixture = attention_require(state);
  struct trial_problem problems[LENGTHS];
  const size_t turn = (size_t)(size - sizes);
  /* Half of the lengths, in turns, one of them causal; with KJIT_TEST_ALL_CONFIGS=1 all. */
  const bool all = getenv("KJIT_TEST_ALL_CONFIGS") != NULL;
  const size_t first = all ? 0 : turn % 2 * 2, end = all ? LENGTHS : first + 2;
  size_t count = 0;
  for (size_t i = first; i < end; i++) {
    const bool causal = (turn + i) % 2 != 0;
    problems[count++] = (struct trial_problem){
        .asked = PROBLEM_OF(.dtype = causal ? KJIT_FP16 : KJIT_BF16, .batch = lengths[i].batch,
                            .heads_q = heads[(turn + i) % HEADS][0], .heads_kv = heads[(turn + i) % HEADS][1],
                            .seq_q = lengths[i].seq_q, .seq_kv = lengths[i].seq_kv, .head_dim = size->head_dim,
                            .head_dim_v = size->head_dim_v, .flags = causal ? KJIT_ATTENTION_CAUSAL : 0),
        .layout = lengths[i].layout,
        .scale = lengths[i].scale,
        .lse = i != 1,
        .seed = random_next(&fixture->random)};
  }
  attention_run_problems(fixture, problems, count);
}

static void test_attention__head_size_64_is_right(void **state) {
  run_size(state, &sizes[0]);
}

static void test_attention__head_size_72_is_right(void **state) {
  run_size(state, &sizes[1]);
}

static void test_attention__head_size_128_is_right(void **state) {
  run_size(state, &sizes[2]);
}

static void test_attention__head_sizes_192_and_128_are_right(void **state) {
  run_size(state, &sizes[3]);
}

static void test_attention__head_size_256_is_right(void **state) {
  run_size(state, &sizes[4]);
}

/* Memory of its own for O beside two tiles of Q: of one chunk of columns and of two, tiles of a single step and of
 * several, three consumers, two pairs of them, packed heads, few keys of rows that are no whole lines. By default the
 * first three; with KJIT_TEST_ALL_CONFIGS=1 all. */
static const struct {
  int64_t head_dim, heads_q, heads_kv, seq_q, seq_kv;
  int causal, consumers, tile_n, stages, packed;
} late[] = {{64, 4, 4, 300, 300, 1, 2, 128, 2, 1},  {128, 3, 3, 270, 270, 0, 2, 128, 2, 1},
            {64, 4, 4, 300, 300, 1, 4, 64, 3, 1},   {64, 8, 2, 150, 150, 1, 4, 64, 3, 4},
            {64, 4, 2, 500, 100, 0, 3, 128, 2, 1},  {128, 4, 2, 260, 200, 1, 2, 64, 3, 1},
            {64, 8, 2, 150, 150, 1, 2, 128, 2, 4},  {128, 4, 4, 300, 40, 0, 1, 64, 2, 1},
            {128, 2, 2, 700, 700, 1, 2, 128, 2, 1}, {64, 6, 6, 200, 128, 1, 3, 128, 3, 1},
            {120, 4, 2, 300, 41, 0, 2, 32, 2, 1},   {176, 2, 2, 300, 35, 0, 2, 32, 2, 1},
            {40, 3, 3, 400, 43, 0, 3, 64, 2, 1}};

static void run_late(struct gpu_fixture *fixture, size_t i) {
  const struct trial_problem problem = {
      .asked = PROBLEM_OF(.dtype = KJIT_BF16, .batch = 2, .heads_q = late[i].heads_q, .heads_kv = late[i].heads_kv,
                          .seq_q = late[i].seq_q, .seq_kv = late[i].seq_kv, .head_dim = late[i].head_dim,
                          .head_dim_v = late[i].head_dim, .flags = late[i].causal ? KJIT_ATTENTION_CAUSAL : 0),
      .lse = 1,
      .seed = random_next(&fixture->random)};
  char text[256];
  const int columns = (int)late[i].head_dim;
  snprintf(text, sizeof text,
           "dtype=bf16,head_dim=%d,head_dim_v=%d,causal=%d,consumers=%d,tile_n=%d,stages=%d,q_buffers=2,o_chunks=%d,"
           "ping_pong=1,rescale_slack=15,packed=%d,split=0",
           columns, columns, late[i].causal, late[i].consumers, late[i].tile_n, late[i].stages, (columns + 63) / 64,
           late[i].packed);
  attention_run_config(fixture, "attention_sm90", text, &problem);
}

static void test_attention__o_with_memory_of_its_own_beside_two_queries_is_right(void **state) {
  struct gpu_fixture *fixture = attention_require(state);
  const bool all = getenv("KJIT_TEST_ALL_CONFIGS") != NULL;
  const size_t count = sizeof late / sizeof *late;
  for (size_t i = 0; i < (all ? count : 3); i++)
    run_late(fixture, i);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_attention__head_size_64_is_right),
      cmocka_unit_test(test_attention__head_size_72_is_right),
      cmocka_unit_test(test_attention__head_size_128_is_right),
      cmocka_unit_test(test_attention__head_sizes_192_and_128_are_right),
      cmocka_unit_test(test_attention__head_size_256_is_right),
      cmocka_unit_test(test_attention__o_with_memory_of_its_own_beside_two_queries_is_right),
  };
  return cmocka_run_group_tests_name("attention on the emulator", tests, emulator_setup, gpu_teardown);
}
