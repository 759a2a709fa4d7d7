/* Every flag of the family on small, ragged problems, judged beside float64: small enough to run under
 * compute-sanitizer. Exit code 0: all right; 1: something is not; 3: no GPU.
 *
 *   compute-sanitizer --tool memcheck  --error-exitcode 9 sanitizer_sample
 *   compute-sanitizer --tool racecheck --error-exitcode 9 sanitizer_sample
 *   compute-sanitizer --tool initcheck --error-exitcode 9 sanitizer_sample */
#include "case_generator.h"

#include <inttypes.h>
#include <stdio.h>

#include "sample.h"
#include "support/prebuild.h"

#define PLAIN_CASES 24
#define CASES       34 /* then each flag with a mask, groups, and head sizes that are odd or unequal */

static const struct {
  int32_t d_head, B_r, B_c, n_warps;
} tuples[] = {{128, 64, 64, 4}, {64, 32, 32, 2}, {80, 16, 48, 1}, {96, 128, 32, 8}};

/* All flags at the first tuple in one type; at the others every flag comes up in the other type too. */
static struct gpu_case make_case(struct random *random, size_t i) {
  const size_t tuple = i < GENERATOR_FLAG_ROWS ? 0 : 1 + i % 3;
  struct gpu_case made = {.config = {.dtype = i < GENERATOR_FLAG_ROWS ? KJIT_FP16 : KJIT_BF16,
                                     .d_head = tuples[tuple].d_head,
                                     .B_r = tuples[tuple].B_r,
                                     .B_c = tuples[tuple].B_c,
                                     .n_warps = tuples[tuple].n_warps}};
  generator_flags(&made.config, i % GENERATOR_FLAG_ROWS);
  made.problem = (struct trial_problem){
      .asked = PROBLEM_OF(.dtype = made.config.dtype, .batch = 1, .heads_q = 2, .seq_q = 70 + (int64_t)i,
                          .seq_kv = i % 4 ? 100 + (int64_t)i : 1, .head_dim = made.config.d_head),
      .layout = (enum problem_layout)(i % LAYOUT_COUNT),
      .lse = i % 2 == 0,
      .seed = random_next(random)};
  if (i >= PLAIN_CASES) {
    problem_set_causal(&made.problem, 1);
    made.problem.asked.heads_q = 4;
    made.problem.asked.heads_kv = 2;
    made.problem.asked.head_dim = made.config.d_head - (i % 2 ? 8 : 0);
    made.problem.asked.head_dim_v = made.config.d_head - (i % 2 ? 0 : 24);
    made.problem.layout = LAYOUT_PADDED;
  }
  if (made.problem.layout == LAYOUT_PACKED) made.problem.asked.seq_kv = made.problem.asked.seq_q;
  return made;
}

static kjit_status run_case(const struct sample *sample, const struct gpu_case *sample_case,
                            struct attention_verdict *verdict, kjit_error *error) {
  struct attention_data data = {0};
  struct attention_reference reference = {0};
  const kjit_config config = kjit_flash_config_plain(&sample_case->config);
  kjit_status status = attention_data_create(&data, &sample->kernels, &sample_case->problem, error);
  if (status == KJIT_OK) status = attention_reference_create(&reference, &data, error);
  if (status == KJIT_OK) status = attention_run(&data, &reference, &config, verdict, error);
  attention_reference_destroy(&reference, &sample->card);
  attention_data_destroy(&data);
  return status;
}

static int report(const struct gpu_case *sample_case, const struct attention_verdict *verdict, kjit_status status,
                  const kjit_error *error) {
  char config[KJIT_FLASH_CONFIG_TEXT_MAX] = "", problem[PROBLEM_TEXT_MAX], numbers[ATTENTION_VERDICT_TEXT_MAX];
  if (kjit_flash_config_print(&sample_case->config, 0, config, sizeof config, NULL) != KJIT_OK) config[0] = '\0';
  problem_print(&sample_case->problem, problem);
  attention_verdict_print(verdict, &sample_case->problem, numbers);
  printf("%s | %s\n  %s\n", config, problem, status == KJIT_OK ? numbers : error->message);
  return status == KJIT_OK && verdict->passed ? 0 : 1;
}

static int run_all(const struct sample *sample) {
  struct random random = {.state = random_fresh_seed()};
  struct gpu_case cases[CASES];
  kjit_config variants[CASES];
  kjit_error error = {0};
  int failures = 0;
  printf("repeat with KJIT_SEED=0x%" PRIx64 "\n", random.state);
  for (size_t i = 0; i < CASES; i++) {
    cases[i] = make_case(&random, i);
    if (kjit_config_of_flash(&cases[i].config, &cases[i].problem.asked, &variants[i], &error) != KJIT_OK) break;
  }
  if (error.status != KJIT_OK || prebuild(sample->runtime, variants, CASES, sample->card.arch, 0, &error) != KJIT_OK) {
    printf("%s\n", error.message);
    return 1;
  }
  for (size_t i = 0; i < CASES; i++) {
    if (!sample_has(sample, i)) continue;
    struct attention_verdict verdict = {0};
    const kjit_status status = run_case(sample, &cases[i], &verdict, &error);
    failures += report(&cases[i], &verdict, status, &error);
  }
  printf("%d of %d not right\n", failures, CASES);
  return failures ? 1 : 0;
}

int main(int argc, char **argv) {
  return sample_main(argc, argv, NULL, run_all);
}
