/* Every flag of flash_forward on small, ragged problems, judged beside float64: small enough to run under
 * compute-sanitizer. Exit code 0: all right; 1: something is not; 3: no GPU. sample.h tells of its arguments.
 *
 *   compute-sanitizer --tool memcheck  --error-exitcode 9 gpu_sanitizer_sample
 *   compute-sanitizer --tool racecheck --error-exitcode 9 gpu_sanitizer_sample
 *   compute-sanitizer --tool initcheck --error-exitcode 9 gpu_sanitizer_sample
 *   compute-sanitizer --tool synccheck --error-exitcode 9 gpu_sanitizer_sample */
#include "case_generator.h"

#include <inttypes.h>
#include <stdio.h>

#include "sample.h"

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

_Static_assert(ATTENTION_VERDICT_TEXT_MAX <= SAMPLE_VERDICT_MAX, "a verdict fits");

static kjit_status run_case(const struct sample *sample, const void *problem, struct sample_verdict *verdict,
                            kjit_error *error) {
  const struct gpu_case *const made = problem;
  struct attention_verdict found = {0};
  struct attention_data data = {0};
  struct attention_reference reference = {0};
  CUstream stream = sample->card.stream;
  const kjit_config config = kjit_flash_config_plain(&made->config);
  kjit_status status = attention_data_create(&data, &sample->kernels, &made->problem, error);
  if (status == KJIT_OK) status = attention_reference_create(&reference, &data, error);
  if (status == KJIT_OK) status = attention_data_poison(&data, stream, error);
  if (status == KJIT_OK) status = kjit_attention_forward(sample->runtime, &config, &data.args, stream, error);
  if (status == KJIT_OK) status = card_synchronize(&sample->card, stream, error);
  if (status == KJIT_OK) status = attention_judge(&data, &reference, &found, error);
  attention_verdict_print(&found, &made->problem, verdict->text);
  verdict->passed = found.passed;
  attention_reference_destroy(&reference, &sample->card);
  attention_data_destroy(&data);
  return status;
}

static int run_all(const struct sample *sample) {
  struct random random = {.state = random_fresh_seed()};
  int failures = 0;
  printf("repeat with KJIT_SEED=0x%" PRIx64 "\n", random.state);
  for (size_t i = 0; i < CASES; i++) {
    const struct gpu_case made = make_case(&random, i);
    char config[KJIT_FLASH_CONFIG_TEXT_MAX] = "", problem[PROBLEM_TEXT_MAX], what[sizeof config + sizeof problem + 3];
    if (kjit_flash_config_print(&made.config, 0, config, sizeof config, NULL) != KJIT_OK) config[0] = '\0';
    problem_print(&made.problem, problem);
    snprintf(what, sizeof what, "%s | %s", config, problem);
    failures += !sample_try(sample, i, what, run_case, &made);
  }
  printf("%d not right\n", failures);
  return failures ? 1 : 0;
}

int main(int argc, char **argv) {
  return sample_main(argc, argv, NULL, run_all);
}
