/* What a tuned table costs a call: the planner's choice with a table of 1,000 rows, for problems that have a row and
 * for problems that have none, against the choice by rules alone. Timed in turns; no GPU. */
#include <stdbool.h>
#include <stdio.h>

#include "attention/tune/tune_attention.h"
#include "output.h"
#include "support/random.h"

#define ROWS        1000
#define PROBLEMS    1000 /* and choices of one timing */
#define MOST_ROUNDS 10000

static const struct family_place place = {"sm_90a", 132, 232448, {0}};
static const struct attention_measured nothing;

struct bench {
  kjit_attention_problem known[PROBLEMS], unknown[PROBLEMS]; /* that have a row, and that have none */
  struct tune_table *table;
  uint64_t sink; /* every answer is used, so that none is left out */
};

static kjit_attention_problem random_problem(struct random *random, int32_t dtype) {
  static const int64_t heads[] = {64, 128, 192, 256};
  kjit_attention_problem problem = kjit_attention_problem_default();
  problem.dtype = dtype;
  problem.flags = random_below(random, 2) ? KJIT_ATTENTION_CAUSAL : 0;
  problem.batch = 1 + (int64_t)random_below(random, 64);
  problem.heads_kv = INT64_C(1) << random_below(random, 5);
  problem.heads_q = problem.heads_kv << random_below(random, 3);
  problem.seq_q = problem.seq_kv = 1 + (int64_t)random_below(random, 32768);
  problem.head_dim = problem.head_dim_v = heads[random_below(random, 4)];
  return problem;
}

/* Rows for bf16 alone, so that fp16 has none: with what the rules choose but for the stages. */
static bool fill(struct bench *bench, struct random *random) {
  struct tune_table *table = bench->table;
  for (size_t i = 0; i < PROBLEMS; i++) {
    struct attention_choice choice;
    struct tune_row row = {.ns = 1, .rules_ns = 1};
    bench->unknown[i] = random_problem(random, KJIT_FP16);
    if (table->count == ROWS) {
      bench->known[i] = bench->known[random_below(random, i)];
      continue;
    }
    bench->known[i] = random_problem(random, KJIT_BF16);
    if (attention_choose(&bench->known[i], &place, &nothing, false, &choice, NULL) != KJIT_OK) return false;
    row.family = choice.family->family;
    memcpy(row.values, choice.values, sizeof choice.values);
    tune_class_of(&bench->known[i], (struct tune_class *)(void *)row.class);
    if (tune_table_add(table, &row, 1, NULL) != KJIT_OK) return false;
  }
  return true;
}

/* Nanoseconds a choice. */
static double ask(struct bench *bench, const kjit_attention_problem *problems,
                  const struct attention_measured *measured) {
  const double begin = statistics_now();
  for (size_t i = 0; i < PROBLEMS; i++) {
    struct attention_choice choice;
    if (attention_choose(&problems[i], &place, measured, false, &choice, NULL) == KJIT_OK)
      bench->sink += (uint64_t)choice.values[5];
  }
  return (statistics_now() - begin) * 1e9 / PROBLEMS;
}

static void compare(struct bench *bench, const kjit_attention_problem *problems, const char *what, size_t rounds,
                    const struct output *output) {
  const struct attention_measured measured = tune_attention_measured(bench->table);
  static double with[MOST_ROUNDS], without[MOST_ROUNDS];
  char name[80];
  for (size_t round = 0; round < rounds; round++) {
    with[round] = ask(bench, problems, &measured);
    without[round] = ask(bench, problems, &nothing);
  }
  const struct statistics table = statistics_of(with, rounds), rules = statistics_of(without, rounds);
  snprintf(name, sizeof name, "%s: rules and table", what);
  output_statistics(output, name, "ns", &table);
  snprintf(name, sizeof name, "%s: rules alone", what);
  output_statistics(output, name, "ns", &rules);
  snprintf(name, sizeof name, "%s: what the table adds", what);
  output_number(output, name, "ns", table.median - rules.median);
}

int main(int argc, char **argv) {
  static struct bench bench;
  struct output output = {.benchmark = "tuned_lookup"};
  struct random random = {random_fresh_seed()};
  size_t rounds = 201;
  struct mem memory;
  if (!output_read_options(&output, argc, argv, &rounds, MOST_ROUNDS)) return 2;
  if (!mem_init(&memory, NULL)) return output_failure(&output, "no allocator");
  bench.table = tune_table_create(&memory, &tune_attention);
  if (!bench.table || !fill(&bench, &random)) return output_failure(&output, "no memory for the table");
  compare(&bench, bench.known, "a class with a row", rounds, &output);
  compare(&bench, bench.unknown, "a class without", rounds, &output);
  tune_table_destroy(bench.table);
  return bench.sink ? 0 : output_failure(&output, "nothing was chosen");
}
