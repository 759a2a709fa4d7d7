/* kjit_attention_forward() on a Hopper card beside float64: FlashAttention-3's own lengths, and problems at random. */
#include "attention_cases.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "support/test.h"

struct lengths {
  int64_t seq_q, seq_kv;
};

/* Those of FlashAttention-3's test_flash_attn.py; docs/attention.md. */
static const struct lengths lengths[] = {{1, 1},       {64, 128},    {128, 192},   {256, 256},   {239, 1},
                                         {799, 3},     {113, 203},   {113, 128},   {128, 217},   {113, 211},
                                         {108, 256},   {256, 512},   {384, 256},   {640, 128},   {512, 256},
                                         {1024, 1024}, {1023, 1024}, {1024, 1023}, {4096, 4096}, {4224, 4224}};

/* Query heads: 6; each with its own key head, three to one, all to one. */
static const int64_t key_heads[] = {6, 2, 1};

enum { LENGTHS = sizeof lengths / sizeof *lengths, HEADS = sizeof key_heads / sizeof *key_heads };

static struct trial_problem grid_problem(struct gpu_fixture *fixture, size_t length, size_t heads, bool causal,
                                         int64_t head_dim, int64_t head_dim_v) {
  const bool is_long = lengths[length].seq_q > 2048;
  const size_t turn = length + heads + causal;
  return (struct trial_problem){.asked = PROBLEM_OF(.dtype = turn % 2 ? KJIT_FP16 : KJIT_BF16, .batch = is_long ? 1 : 9,
                                                    .heads_q = 6, .heads_kv = key_heads[heads],
                                                    .seq_q = lengths[length].seq_q, .seq_kv = lengths[length].seq_kv,
                                                    .head_dim = head_dim, .head_dim_v = head_dim_v,
                                                    .flags = causal ? KJIT_ATTENTION_CAUSAL : 0),
                                .layout = turn % 3 ? LAYOUT_BSHD : LAYOUT_BHSD,
                                .lse = 1,
                                .seed = random_next(&fixture->random)};
}

static void run_grid(void **state, int64_t head_dim, int64_t head_dim_v) {
  struct gpu_fixture *fixture = attention_require(state);
  struct trial_problem problems[LENGTHS * HEADS * 2];
  size_t count = 0;
  for (size_t length = 0; length < LENGTHS; length++)
    for (size_t heads = 0; heads < HEADS; heads++)
      for (int causal = 0; causal < 2; causal++)
        problems[count++] = grid_problem(fixture, length, heads, causal != 0, head_dim, head_dim_v);
  attention_run_problems(fixture, problems, count);
}

static void test_attention_forward__lengths_at_head_size_64_are_right(void **state) {
  run_grid(state, 64, 64);
}

static void test_attention_forward__lengths_at_head_size_128_are_right(void **state) {
  run_grid(state, 128, 128);
}

static void test_attention_forward__lengths_at_head_size_256_are_right(void **state) {
  run_grid(state, 256, 256);
}

static void test_attention_forward__lengths_at_head_size_72_are_right(void **state) {
  run_grid(state, 72, 72);
}

static void test_attention_forward__lengths_at_head_sizes_192_and_128_are_right(void **state) {
  run_grid(state, 192, 128);
}

/* Every multiple of 8, in both types and masks, at a length that is no multiple of anything. */
static void test_attention_forward__every_head_size_is_right(void **state) {
  struct gpu_fixture *fixture = attention_require(state);
  struct trial_problem problems[32 * 2];
  for (size_t i = 0; i < 32 * 2; i++) {
    problems[i] = (struct trial_problem){.asked = PROBLEM_OF(.dtype = i / 2 % 2 ? KJIT_FP16 : KJIT_BF16, .batch = 2,
                                                             .heads_q = 4, .heads_kv = 2, .seq_q = 333, .seq_kv = 1217,
                                                             .head_dim = 8 * (int64_t)(i / 2 + 1),
                                                             .flags = (i % 2) ? KJIT_ATTENTION_CAUSAL : 0),
                                         .lse = 1,
                                         .seed = random_next(&fixture->random)};
  }
  attention_run_problems(fixture, problems, 32 * 2);
}

/* Keys and values that are copied into rows of whole lines first. */
static void test_attention_forward__copied_keys_and_values_are_right(void **state) {
  static const struct {
    int64_t batch, heads_q, heads_kv, head_dim, head_dim_v;
    struct lengths lengths;
  } shapes[] = {{1, 8, 1, 216, 216, {6001, 6001}},
                {1, 16, 2, 200, 200, {5000, 4999}},
                {2, 8, 2, 136, 200, {4097, 4100}},
                {1, 24, 3, 248, 128, {4444, 5001}}};
  struct gpu_fixture *fixture = attention_require(state);
  struct trial_problem problems[2 * sizeof shapes / sizeof *shapes];
  size_t count = 0;
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (size_t causal = 0; causal < 2; causal++)
      problems[count++] = (struct trial_problem){
          .asked =
              PROBLEM_OF(.dtype = i % 2 ? KJIT_FP16 : KJIT_BF16, .batch = shapes[i].batch, .heads_q = shapes[i].heads_q,
                         .heads_kv = shapes[i].heads_kv, .seq_q = shapes[i].lengths.seq_q,
                         .seq_kv = shapes[i].lengths.seq_kv, .head_dim = shapes[i].head_dim,
                         .head_dim_v = shapes[i].head_dim_v, .flags = causal ? KJIT_ATTENTION_CAUSAL : 0),
          .layout = causal ? LAYOUT_BSHD : LAYOUT_BHSD,
          .lse = 1,
          .seed = random_next(&fixture->random)};
  attention_run_problems(fixture, problems, count);
}

/* A cache of keys and few queries: heads packed into a tile's rows, key blocks shared out among multiprocessors, both,
 * neither. */
static void test_attention_forward__short_queries_against_many_keys_are_right(void **state) {
  static const int64_t heads[][2] = {{64, 8}, {32, 1}, {28, 4}, {8, 8}};
  static const struct lengths shorts[] = {{1, 8192},  {1, 65536}, {2, 8191},  {7, 30001},
                                          {16, 8192}, {64, 9999}, {128, 8192}};
  static const int64_t sizes[][2] = {{128, 128}, {64, 64}, {192, 128}, {256, 256}};
  enum { SHORTS = sizeof shorts / sizeof *shorts };
  struct gpu_fixture *fixture = attention_require(state);
  struct trial_problem problems[4 * SHORTS * 2];
  for (size_t i = 0; i < 4 * SHORTS * 2; i++) {
    const size_t causal = i % 2, length = i / 2 % SHORTS, group = i / 2 / SHORTS;
    const int64_t *size = sizes[(length + group) % 4];
    problems[i] = (struct trial_problem){
        .asked = PROBLEM_OF(.dtype = length % 2 ? KJIT_FP16 : KJIT_BF16, .batch = 1 + (int64_t)(length % 2),
                            .heads_q = heads[group][0], .heads_kv = heads[group][1], .seq_q = shorts[length].seq_q,
                            .seq_kv = shorts[length].seq_kv, .head_dim = size[0], .head_dim_v = size[1],
                            .flags = (causal != 0) ? KJIT_ATTENTION_CAUSAL : 0),
        .layout = group % 2 ? LAYOUT_BHSD : LAYOUT_BSHD,
        .lse = 1,
        .seed = random_next(&fixture->random)};
  }
  attention_run_problems(fixture, problems, 4 * SHORTS * 2);
}

/* Enough tiles for attention_short_sm90: runs of whole heads and of tiles, every number of consumers. */
static void test_attention_forward__few_keys_of_many_heads_are_right(void **state) {
  static const struct {
    int64_t batch, heads_q, heads_kv, seq_q, seq_kv, head_dim, head_dim_v;
  } shapes[] = {{400, 12, 12, 128, 128, 64, 64}, {300, 8, 8, 50, 50, 64, 64},   {100, 6, 6, 197, 197, 64, 64},
                {8, 5, 5, 2000, 77, 64, 64},     {60, 8, 2, 100, 256, 64, 64},  {150, 6, 6, 120, 90, 80, 80},
                {100, 8, 4, 128, 128, 128, 128}, {200, 6, 6, 64, 64, 192, 128}, {700, 4, 4, 33, 16, 32, 32}};
  enum { SHAPES = sizeof shapes / sizeof *shapes };
  struct gpu_fixture *fixture = attention_require(state);
  struct trial_problem problems[2 * SHAPES];
  for (size_t i = 0; i < 2 * SHAPES; i++)
    problems[i] = (struct trial_problem){
        .asked =
            PROBLEM_OF(.dtype = i % 2 ? KJIT_FP16 : KJIT_BF16, .batch = shapes[i / 2].batch,
                       .heads_q = shapes[i / 2].heads_q, .heads_kv = shapes[i / 2].heads_kv,
                       .seq_q = shapes[i / 2].seq_q, .seq_kv = shapes[i / 2].seq_kv, .head_dim = shapes[i / 2].head_dim,
                       .head_dim_v = shapes[i / 2].head_dim_v, .flags = i % 2 ? KJIT_ATTENTION_CAUSAL : 0),
        .layout = i % 3 ? LAYOUT_BSHD : LAYOUT_BHSD,
        .lse = 1,
        .seed = random_next(&fixture->random)};
  attention_run_problems(fixture, problems, 2 * SHAPES);
}

/* Few heads: tiles that leave most of a card idle, of all lengths in one launch. */
static void test_attention_forward__small_grids_are_right(void **state) {
  static const int64_t seqs[] = {513, 1024, 2000, 4096};
  struct gpu_fixture *fixture = attention_require(state);
  struct trial_problem problems[16];
  for (size_t i = 0; i < 16; i++) {
    problems[i] = (struct trial_problem){
        .asked = PROBLEM_OF(.dtype = KJIT_BF16, .batch = 1, .heads_q = i / 8 ? 8 : 3, .seq_q = seqs[i / 2 % 4],
                            .seq_kv = seqs[i / 2 % 4] + 777 * (int64_t)(i / 8), .head_dim = i / 4 % 2 ? 64 : 128,
                            .flags = (i % 2 != 0) ? KJIT_ATTENTION_CAUSAL : 0),
        .lse = 1,
        .seed = random_next(&fixture->random)};
  }
  attention_run_problems(fixture, problems, 16);
}

/* From 1 to 1200, small ones as often as large ones, and mostly no round numbers. */
static int64_t random_length(struct random *random) {
  static const size_t bounds[] = {8, 64, 256, 1200};
  return 1 + (int64_t)random_below(random, bounds[random_below(random, 4)]);
}

static int64_t random_head_size(struct random *random) {
  return 8 * (1 + (int64_t)random_below(random, 32));
}

static struct trial_problem random_problem(struct random *random) {
  static const double factors[] = {0, 0.3, 1.7, 30}; /* the last: references are outgrown */
  struct trial_problem problem = {
      .asked = PROBLEM_OF(.dtype = random_below(random, 2) ? KJIT_BF16 : KJIT_FP16,
                          .batch = 1 + (int64_t)random_below(random, 4),
                          .heads_kv = 1 + (int64_t)random_below(random, 3), .seq_q = random_length(random),
                          .seq_kv = random_length(random), .head_dim = random_head_size(random),
                          .flags = (random_below(random, 2) != 0) ? KJIT_ATTENTION_CAUSAL : 0),
      .layout = (enum problem_layout)random_below(random, LAYOUT_SHARED_KV),
      .lse = random_below(random, 4) != 0,
      .seed = random_next(random)};
  problem.asked.heads_q =
      problem.asked.heads_kv * (1 + (int64_t)random_below(random, random_below(random, 2) ? 5 : 20));
  if (random_below(random, 4) == 0) problem.asked.seq_kv *= 1 + (int64_t)random_below(random, 8);
  problem.asked.head_dim_v = random_below(random, 2) ? random_head_size(random) : 0;
  if (problem.layout == LAYOUT_PACKED) problem.asked.seq_kv = problem.asked.seq_q;
  problem.scale = (double)(float)(factors[random_below(random, 4)] / sqrt((double)problem.asked.head_dim));
  return problem;
}

/* $KJIT_GPU_RANDOM_CASES, or 500. */
static size_t random_case_count(void) {
  const char *given = getenv("KJIT_GPU_RANDOM_CASES");
  const long count = given ? strtol(given, NULL, 10) : 500;
  return count > 0 && count <= 100000 ? (size_t)count : 500;
}

static void test_attention_forward__random_problems_are_right(void **state) {
  struct gpu_fixture *fixture = attention_require(state);
  const size_t count = random_case_count();
  struct trial_problem *problems = test_calloc(count, sizeof *problems);
  for (size_t i = 0; i < count; i++)
    problems[i] = random_problem(&fixture->random);
  attention_run_problems(fixture, problems, count);
  test_free(problems);
}

/* One k and one v for all heads and batch entries: strides of 0. TMA takes them, or the call says so. */
static void test_attention_forward__broadcast_keys_are_right(void **state) {
  struct gpu_fixture *fixture = attention_require(state);
  struct trial_problem problems[4];
  for (size_t i = 0; i < 4; i++) {
    problems[i] = gpu_small_problem(fixture);
    problems[i].layout = LAYOUT_SHARED_KV;
    problem_set_causal(&problems[i], i % 2);
    problems[i].asked.head_dim = i / 2 ? 64 : 128;
  }
  attention_run_problems(fixture, problems, 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_attention_forward__lengths_at_head_size_64_are_right),
      cmocka_unit_test(test_attention_forward__lengths_at_head_size_128_are_right),
      cmocka_unit_test(test_attention_forward__lengths_at_head_size_256_are_right),
      cmocka_unit_test(test_attention_forward__lengths_at_head_size_72_are_right),
      cmocka_unit_test(test_attention_forward__lengths_at_head_sizes_192_and_128_are_right),
      cmocka_unit_test(test_attention_forward__every_head_size_is_right),
      cmocka_unit_test(test_attention_forward__copied_keys_and_values_are_right),
      cmocka_unit_test(test_attention_forward__short_queries_against_many_keys_are_right),
      cmocka_unit_test(test_attention_forward__few_keys_of_many_heads_are_right),
      cmocka_unit_test(test_attention_forward__small_grids_are_right),
      cmocka_unit_test(test_attention_forward__random_problems_are_right),
      cmocka_unit_test(test_attention_forward__broadcast_keys_are_right),
  };
  return cmocka_run_group_tests_name("attention on the GPU", tests, gpu_setup, gpu_teardown);
}
