/* attention_sm90 on small, ragged problems, judged beside float64: small enough to run under compute-sanitizer. Exit
 * code 0: all right; 1: something is not; 3: no Hopper GPU.
 *
 *   compute-sanitizer --tool memcheck  --error-exitcode 9 gpu_attention_sanitizer_sample
 *   compute-sanitizer --tool racecheck --error-exitcode 9 gpu_attention_sanitizer_sample */
#include "sample.h"
#include "support/attention_check.h"

/* Each of the planner's kinds: one, two and three consumers, one and two Q buffers, O through memory of its own, odd
 * head sizes, grouped heads, packed and split; and scores so far apart that references are outgrown. */
static const struct trial_problem problems[] = {
    {.asked = PROBLEM_OF(.batch = 1, .heads_q = 2, .seq_q = 1, .seq_kv = 300, .head_dim = 128)},
    {.asked = PROBLEM_OF(.batch = 2, .heads_q = 4, .heads_kv = 2, .seq_q = 130, .seq_kv = 257, .head_dim = 128,
                         .flags = KJIT_ATTENTION_CAUSAL)},
    {.asked = PROBLEM_OF(.batch = 1, .heads_q = 140, .seq_q = 190, .seq_kv = 65, .head_dim = 64)},
    {.asked = PROBLEM_OF(.batch = 1, .heads_q = 140, .heads_kv = 1, .seq_q = 65, .seq_kv = 65, .head_dim = 256,
                         .flags = KJIT_ATTENTION_CAUSAL)},
    {.asked = PROBLEM_OF(.batch = 1, .heads_q = 1, .seq_q = 200, .seq_kv = 1100, .head_dim = 256,
                         .flags = KJIT_ATTENTION_CAUSAL)},
    {.asked = PROBLEM_OF(.batch = 1, .heads_q = 1, .seq_q = 200, .seq_kv = 300, .head_dim = 256)},
    {.asked = PROBLEM_OF(.batch = 1, .heads_q = 3, .heads_kv = 1, .seq_q = 150, .seq_kv = 100, .head_dim = 192,
                         .head_dim_v = 128, .flags = KJIT_ATTENTION_CAUSAL)},
    {.asked = PROBLEM_OF(.batch = 1, .heads_q = 2, .seq_q = 70, .seq_kv = 90, .head_dim = 72, .head_dim_v = 40)},
    {.asked = PROBLEM_OF(.batch = 1, .heads_q = 14, .heads_kv = 2, .seq_q = 1, .seq_kv = 3001, .head_dim = 128)},
    {.asked = PROBLEM_OF(.batch = 1, .heads_q = 8, .heads_kv = 2, .seq_q = 5, .seq_kv = 2500, .head_dim = 64,
                         .flags = KJIT_ATTENTION_CAUSAL)},
    {.asked = PROBLEM_OF(.batch = 1, .heads_q = 1, .seq_q = 300, .seq_kv = 900, .head_dim = 64,
                         .flags = KJIT_ATTENTION_CAUSAL),
     .scale = 2},
};

_Static_assert(ATTENTION_VERDICT_TEXT_MAX <= SAMPLE_VERDICT_MAX, "a verdict fits");

static kjit_status run_problem(const struct sample *sample, const struct trial_problem *problem,
                               struct sample_verdict *verdict, kjit_error *error) {
  struct attention_verdict found = {0};
  struct attention_data data = {0};
  struct attention_reference reference = {0};
  CUstream stream = sample->card.stream;
  kjit_status status = attention_data_create(&data, &sample->kernels, problem, error);
  if (status == KJIT_OK) status = attention_reference_create(&reference, &data, error);
  for (int run = 0; run < 2 && status == KJIT_OK; run++) { /* the second finds the first one's tickets */
    status = attention_data_poison(&data, stream, error);
    if (status == KJIT_OK) status = kjit_attention_forward(sample->runtime, NULL, &data.args, stream, error);
  }
  if (status == KJIT_OK) status = card_synchronize(&sample->card, stream, error);
  if (status == KJIT_OK) status = attention_judge(&data, &reference, &found, error);
  attention_verdict_print(&found, problem, verdict->text);
  verdict->passed = found.passed;
  attention_reference_destroy(&reference, &sample->card);
  attention_data_destroy(&data);
  return status;
}

static int run_all(const struct sample *sample) {
  return sample_run_problems(sample, problems, sizeof problems / sizeof *problems, run_problem);
}

int main(int argc, char **argv) {
  return sample_main(argc, argv, "sm_90", run_all);
}
