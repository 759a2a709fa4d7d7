/* Attention backward on Hopper on small, ragged problems, judged beside float64: small enough to run under
 * compute-sanitizer. Exit code 0: all right; 1: something is not; 3: no Hopper GPU.
 *
 *   compute-sanitizer --tool memcheck  --error-exitcode 9 gpu_backward_sanitizer_sample
 *   compute-sanitizer --tool racecheck --error-exitcode 9 gpu_backward_sanitizer_sample
 *   compute-sanitizer --tool initcheck --error-exitcode 9 gpu_backward_sanitizer_sample */
#include "sample.h"
#include "support/attention_gradients.h"

/* Each of the planner's kinds: dq summed in device memory with steps of 64 and 128 queries, half a step apart, in a
 * fixed order and in any; dq, dk and dv in registers, split by gradient; odd head sizes, grouped heads. */
static const struct trial_problem problems[] = {
    {.asked = PROBLEM_OF(.batch = 1, .heads_q = 1, .seq_q = 520, .seq_kv = 515, .head_dim = 64)},
    {.asked = PROBLEM_OF(.batch = 1, .heads_q = 1, .seq_q = 1030, .seq_kv = 1025, .head_dim = 64,
                         .flags = KJIT_ATTENTION_CAUSAL | KJIT_ATTENTION_DETERMINISTIC)},
    {.asked = PROBLEM_OF(.batch = 1, .heads_q = 1, .seq_q = 2050, .seq_kv = 2049, .head_dim = 40,
                         .flags = KJIT_ATTENTION_CAUSAL)},
    {.asked = PROBLEM_OF(.batch = 1, .heads_q = 1, .seq_q = 513, .seq_kv = 530, .head_dim = 128)},
    {.asked = PROBLEM_OF(.batch = 1, .heads_q = 1, .seq_q = 2049, .seq_kv = 2050, .head_dim = 72, .head_dim_v = 40,
                         .flags = KJIT_ATTENTION_CAUSAL)},
    {.asked = PROBLEM_OF(.batch = 2, .heads_q = 4, .heads_kv = 2, .seq_q = 130, .seq_kv = 257, .head_dim = 128,
                         .flags = KJIT_ATTENTION_CAUSAL)},
    {.asked = PROBLEM_OF(.batch = 1, .heads_q = 3, .heads_kv = 1, .seq_q = 150, .seq_kv = 100, .head_dim = 192,
                         .head_dim_v = 128, .flags = KJIT_ATTENTION_CAUSAL)},
    {.asked = PROBLEM_OF(.batch = 1, .heads_q = 2, .seq_q = 200, .seq_kv = 130, .head_dim = 256)},
};

_Static_assert(GRADIENTS_VERDICT_TEXT_MAX <= SAMPLE_VERDICT_MAX, "a verdict fits");

static kjit_status run_problem(const struct sample *sample, const struct trial_problem *problem,
                               struct sample_verdict *verdict, kjit_error *error) {
  const uint32_t flags = problem->asked.flags & KJIT_ATTENTION_DETERMINISTIC; /* which is the backward call's alone */
  const struct gradient_choices choices = {.dlse = true, .seed = problem->seed};
  struct trial_problem forward = *problem;
  struct gradients_verdict found = {0};
  struct attention_data data = {0};
  struct gradients gradients = {0};
  CUstream stream = sample->card.stream;
  forward.asked.flags &= ~flags;
  kjit_status status = attention_data_create(&data, &sample->kernels, &forward, error);
  if (status == KJIT_OK) status = kjit_attention_forward(sample->runtime, NULL, &data.args, stream, error);
  if (status == KJIT_OK) status = gradients_create(&gradients, &data, &choices, error);
  if (status == KJIT_OK) status = gradients_reference(&gradients, error);
  gradients.args.flags |= flags;
  for (int run = 0; run < 2 && status == KJIT_OK; run++) { /* the second finds the first one's sums and counters */
    status = gradients_poison(&gradients, stream, error);
    if (status == KJIT_OK) status = kjit_attention_backward(sample->runtime, NULL, 0, &gradients.args, stream, error);
  }
  if (status == KJIT_OK) status = card_synchronize(&sample->card, stream, error);
  if (status == KJIT_OK) status = gradients_judge(&gradients, &found, error);
  gradients_verdict_print(&found, verdict->text);
  verdict->passed = found.passed;
  gradients_destroy(&gradients);
  attention_data_destroy(&data);
  return status;
}

static int run_all(const struct sample *sample) {
  return sample_run_problems(sample, problems, sizeof problems / sizeof *problems, run_problem);
}

int main(void) {
  return sample_main("sm_90", run_all);
}
