/* Attention variants on the card beside float64, without a test framework: for machines that have none.
 *
 * usage: gpu_variant_sample [NAME]...   the cases of variant_cases.c with these names; all without any
 *
 * Prints a line for each case that is not right, then a count. Exit code: 0 when all are right, 3 without a GPU.
 *
 * Threads: one. */
#include <stdio.h>
#include <string.h>

#include "variant_trial.h"

static const struct variant_shape shapes[] = {
    {1, 2, 2, 200, 333, 64, true},  {2, 4, 1, 65, 130, 64, false},   {1, 8, 2, 1, 1500, 64, true},
    {1, 2, 2, 600, 600, 128, true}, {1, 4, 2, 333, 777, 128, false}, {1, 8, 1, 3, 2100, 128, true},
    {1, 2, 1, 190, 450, 256, true}, {1, 2, 2, 130, 300, 40, false},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

struct counts {
  size_t right, wrong;
};

static void run(const struct card *card, kjit_runtime *runtime, const struct variant_case *one,
                const struct variant_shape *shape, const kjit_config *config, struct counts *counts) {
  struct variant_report report;
  kjit_error error = {0};
  const kjit_status status = variant_trial_run(card, runtime, one, shape, config, 7, &report, &error);
  if (status == KJIT_OK && report.passed) {
    counts->right++;
    return;
  }
  counts->wrong++;
  printf("WRONG %s B%d H%d/%d Sq%d Skv%d D%d %s%s: %.300s\n", one->name, shape->batch, shape->heads, shape->heads_kv,
         shape->seq_q, shape->seq_kv, shape->head_dim, shape->bf16 ? "bf16" : "fp16", config ? " flash_forward" : "",
         status == KJIT_OK ? report.why : error.message);
  fflush(stdout);
}

/* On the planner's kernel, and on flash_forward's. */
static void run_case(const struct card *card, kjit_runtime *runtime, const struct variant_case *one,
                     struct counts *counts) {
  for (size_t i = 0; i < SHAPES; i++) {
    kjit_attention_problem problem = kjit_attention_problem_default();
    kjit_config config;
    problem.dtype = shapes[i].bf16 ? KJIT_BF16 : KJIT_FP16;
    problem.heads_q = shapes[i].heads;
    problem.heads_kv = shapes[i].heads_kv;
    problem.seq_q = shapes[i].seq_q;
    problem.seq_kv = shapes[i].seq_kv;
    problem.head_dim = shapes[i].head_dim;
    run(card, runtime, one, &shapes[i], NULL, counts);
    if (i % 2 == 0 && kjit_attention_choose(runtime, &problem, "sm_80", &config, NULL, NULL) == KJIT_OK)
      run(card, runtime, one, &shapes[i], &config, counts);
  }
}

static bool is_wanted(const char *name, int count, char **names) {
  if (count == 0) return true;
  for (int i = 0; i < count; i++) {
    if (!strcmp(names[i], name)) return true;
  }
  return false;
}

int main(int argc, char **argv) {
  struct card card;
  kjit_runtime *runtime = NULL;
  kjit_error error = {0};
  struct counts counts = {0};
  if (card_open(&card, 0, &error) != KJIT_OK) {
    printf("skipped: %s\n", error.message);
    return 3;
  }
  if (kjit_runtime_create(&runtime, NULL, &error) != KJIT_OK) {
    printf("%s\n", error.message);
    card_close(&card);
    return 1;
  }
  for (size_t i = 0; i < variant_case_count; i++) {
    const struct counts before = counts;
    if (!is_wanted(variant_cases[i].name, argc - 1, argv + 1)) continue;
    run_case(&card, runtime, &variant_cases[i], &counts);
    printf("%s: %zu right, %zu wrong\n", variant_cases[i].name, counts.right - before.right,
           counts.wrong - before.wrong);
    fflush(stdout);
  }
  printf("variants: %zu right, %zu wrong\n", counts.right, counts.wrong);
  kjit_runtime_destroy(runtime);
  card_close(&card);
  return counts.wrong ? 1 : 0;
}
