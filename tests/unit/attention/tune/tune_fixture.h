/* Tuned tables as text, for an H200 that is nowhere. */
#ifndef KJIT_TESTS_UNIT_ATTENTION_TUNE_FIXTURE_H
#define KJIT_TESTS_UNIT_ATTENTION_TUNE_FIXTURE_H

#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>

#include "attention/sm90/sm90_call.h"
#include "attention/tune/tune_attention.h"
#include "family/tune/tune_text.h"
#include "support/failing_allocator.h"
#include "support/usual_card.h"

struct tune_world {
  struct failing_allocator memory;
  struct mem mem;
  struct tune_table *table;
  struct digest kernels[ATTENTION_FAMILY_COUNT];
  kjit_error error;
};

/* The class in a row of attention's tables. */
static inline struct tune_class *class_in(struct tune_row *row) {
  return (void *)row->class;
}

static const struct family_place tune_place = {"sm_90a", 132, 232448, {0}};

static inline int tune_setup(void **state) {
  struct tune_world *w = calloc(1, sizeof *w);
  *state = w;
  if (!w) return -1;
  failing_allocator_reset(&w->memory, FAIL_NEVER);
  const kjit_allocator hooks = failing_allocator_hooks(&w->memory);
  mem_init(&w->mem, &hooks);
  for (size_t i = 0; i < ATTENTION_FAMILY_COUNT; i++)
    digest_of(&w->kernels[i], &i, sizeof i);
  w->table = tune_table_create(&w->mem, &tune_attention);
  return w->table ? 0 : -1;
}

static inline int tune_teardown(void **state) {
  struct tune_world *w = *state;
  if (!w) return 0;
  tune_table_destroy(w->table);
  const long blocks = atomic_load(&w->memory.live);
  if (blocks) print_error("left over: %ld blocks of memory\n", blocks);
  free(w);
  *state = NULL;
  return blocks ? -1 : 0;
}

#define TUNE_TEST(test) cmocka_unit_test_setup_teardown(test, tune_setup, tune_teardown)

/* The n-th allocation from now on fails, and all behind it; FAIL_NEVER: none. */
static inline void tune_fail_from(struct tune_world *w, long n) {
  atomic_store(&w->memory.fail_at, n == FAIL_NEVER ? FAIL_NEVER : atomic_load(&w->memory.calls) + n);
}

static inline const kjit_attention_sm90_config *tune_sm90(const struct attention_choice *choice) {
  return sm90_config_view(choice->values);
}

static inline kjit_attention_problem tune_problem(int64_t seq, int64_t head_dim) {
  kjit_attention_problem problem = kjit_attention_problem_default();
  problem.dtype = KJIT_BF16;
  problem.batch = 2;
  problem.heads_q = problem.heads_kv = 16;
  problem.seq_q = problem.seq_kv = seq;
  problem.head_dim = problem.head_dim_v = head_dim;
  return problem;
}

static inline struct tune_header tune_header(const struct tune_world *w) {
  struct tune_header header = {.device = "NVIDIA H200",
                               .arch = "sm_90a",
                               .multiprocessors = 132,
                               .driver = 13000,
                               .library = "0.1.0",
                               .compiler = "13.0",
                               .date = "2026-11-21"};
  memcpy(header.kernels, w->kernels, sizeof header.kernels);
  return header;
}

/* What the rules choose, with other stages: legal, and not what they choose. */
static inline struct tune_row tune_row_of(const kjit_attention_problem *problem) {
  struct tune_row row = {.ns = 400500, .rules_ns = 420000};
  kjit_attention_sm90_config config;
  assert_status(KJIT_OK, usual_sm90_choose(problem, 132, &config, NULL), NULL);
  config.stages = config.stages == 2 ? 3 : 2;
  config.tile_n = 64;
  row.family = sm90_attention.family;
  memcpy(row.values, &config, sizeof config);
  tune_class_of(problem, class_in(&row));
  assert_status(KJIT_OK, tune_row_check(&tune_attention, &row, &tune_place, NULL), NULL);
  return row;
}

static inline void tune_add(struct tune_world *w, const struct tune_row *row) {
  assert_status(KJIT_OK, tune_table_add(w->table, row, 1, &w->error), &w->error);
}

/* A table of three rows: two configs, and one that leaves it to the rules. */
static inline void tune_fill(struct tune_world *w) {
  const kjit_attention_problem wide = tune_problem(4096, 128), narrow = tune_problem(1024, 64);
  struct tune_row row = tune_row_of(&wide);
  w->table->header = tune_header(w);
  tune_add(w, &row);
  row = tune_row_of(&narrow);
  tune_add(w, &row);
  row.rules = 1;
  class_in(&row)->causal = 1;
  row.family = NULL;
  memset(row.values, 0, sizeof row.values);
  tune_add(w, &row);
}

/* Its text; free() it. */
static inline char *tune_text_of(struct tune_world *w) {
  struct text out;
  text_init(&out, &w->mem, TUNE_TEXT_MAX);
  tune_text_write(w->table, &out);
  assert_false(out.failed);
  char *text = strdup(out.data);
  text_finish(&out);
  return text;
}

#endif
