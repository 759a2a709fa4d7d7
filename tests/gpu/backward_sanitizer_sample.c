/* Attention backward on Hopper on small, ragged problems, judged beside float64: small enough to run under
 * compute-sanitizer. Exit code 0: all right; 1: something is not; 3: no Hopper GPU.
 *
 *   compute-sanitizer --tool memcheck  --error-exitcode 9 gpu_backward_sanitizer_sample
 *   compute-sanitizer --tool racecheck --error-exitcode 9 gpu_backward_sanitizer_sample
 *   compute-sanitizer --tool initcheck --error-exitcode 9 gpu_backward_sanitizer_sample */
#include <string.h>

#include "sample.h"
#include "support/attention_gradients.h"

/* The kernels of a problem. With a tile: those that sum dq in device memory, with steps of so many queries; otherwise
 * the planner's, which at these lengths keep all sums in registers. */
struct way {
  int32_t tile, staggered, persistent, stores;
};

/* Each of the planner's kinds: dq summed in device memory with steps of 64 and 128 queries, half a step apart, by
 * persistent blocks, in a fixed order and in any; dq, dk and dv in registers, split by gradient; odd head sizes,
 * grouped heads. Of persistent blocks some have two tiles: run_all() gives such problems so many heads. */
static const struct {
  struct trial_problem problem;
  struct way way;
} cases[] = {
    {{.asked = PROBLEM_OF(.batch = 1, .seq_q = 70, .seq_kv = 130, .head_dim = 64)}, {128, 1, 1, 1}},
    {{.asked = PROBLEM_OF(.batch = 1, .seq_q = 130, .seq_kv = 150, .head_dim = 24,
                          .flags = KJIT_ATTENTION_CAUSAL | KJIT_ATTENTION_DETERMINISTIC)},
     {128, 0, 1, 1}},
    {{.asked = PROBLEM_OF(.batch = 1, .heads_q = 2, .seq_q = 300, .seq_kv = 260, .head_dim = 40,
                          .flags = KJIT_ATTENTION_CAUSAL)},
     {128, 1, 0, 0}},
    {{.asked = PROBLEM_OF(.batch = 1, .seq_q = 70, .seq_kv = 130, .head_dim = 128)}, {64, 0, 1, 1}},
    {{.asked = PROBLEM_OF(.batch = 1, .seq_q = 130, .seq_kv = 140, .head_dim = 72, .head_dim_v = 40,
                          .flags = KJIT_ATTENTION_CAUSAL)},
     {64, 0, 1, 1}},
    {{.asked = PROBLEM_OF(.batch = 2, .heads_q = 4, .heads_kv = 2, .seq_q = 70, .seq_kv = 137, .head_dim = 128,
                          .flags = KJIT_ATTENTION_CAUSAL)},
     {0}},
    {{.asked = PROBLEM_OF(.batch = 1, .heads_q = 3, .heads_kv = 1, .seq_q = 150, .seq_kv = 100, .head_dim = 192,
                          .head_dim_v = 128, .flags = KJIT_ATTENTION_CAUSAL)},
     {0}},
    {{.asked = PROBLEM_OF(.batch = 1, .heads_q = 1, .seq_q = 130, .seq_kv = 100, .head_dim = 256)}, {0}},
};
enum { CASES = sizeof cases / sizeof *cases };

_Static_assert(GRADIENTS_VERDICT_TEXT_MAX <= SAMPLE_VERDICT_MAX, "a verdict fits");

/* The three kernels that sum dq, in canonical form. */
static kjit_status make_configs(const kjit_attention_problem *asked, const struct way *way, kjit_config *configs,
                                kjit_error *error) {
  static const int32_t passes[] = {8, 7, 16};
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < 3 && status == KJIT_OK; i++) {
    const kjit_attention_backward_sm90_config config = {.dtype = asked->dtype,
                                                        .head_dim = (int32_t)asked->head_dim,
                                                        .head_dim_v = (int32_t)asked->head_dim_v,
                                                        .causal = asked->flags & KJIT_ATTENTION_CAUSAL ? 1 : 0,
                                                        .pass = passes[i],
                                                        .consumers = 2,
                                                        .tile = way->tile,
                                                        .stages = 2,
                                                        .value_stages = 2,
                                                        .pipelined = 1,
                                                        .staggered = way->staggered,
                                                        .persistent = way->persistent,
                                                        .stores = way->stores};
    configs[i] = (kjit_config){.family = kjit_family_find("attention_backward_sm90")};
    memcpy(configs[i].values, &config, sizeof config);
    status = kjit_config_check(&configs[i], "sm_90a", error);
    if (status == KJIT_OK) configs[i] = kjit_config_canonical(&configs[i]);
  }
  return status;
}

static kjit_status run_problem(const struct sample *sample, const struct trial_problem *problem,
                               struct sample_verdict *verdict, kjit_error *error) {
  const uint32_t flags = problem->asked.flags & KJIT_ATTENTION_DETERMINISTIC; /* which is the backward call's alone */
  const struct gradient_choices choices = {.dlse = true, .seed = problem->seed};
  const struct way *way = &cases[problem->seed].way;
  struct trial_problem forward = *problem;
  kjit_config configs[3];
  struct gradients_verdict found = {0};
  struct attention_data data = {0};
  struct gradients gradients = {0};
  CUstream stream = sample->card.stream;
  forward.asked.flags &= ~flags;
  kjit_status status = way->tile ? make_configs(&forward.asked, way, configs, error) : KJIT_OK;
  if (status == KJIT_OK) status = attention_data_create(&data, &sample->kernels, &forward, error);
  if (status == KJIT_OK) status = kjit_attention_forward(sample->runtime, NULL, &data.args, stream, error);
  if (status == KJIT_OK) status = gradients_create(&gradients, &data, &choices, error);
  if (status == KJIT_OK) status = gradients_reference(&gradients, error);
  gradients.args.flags |= flags;
  for (int run = 0; run < 2 && status == KJIT_OK; run++) { /* the second finds the first one's sums and counters */
    status = gradients_poison(&gradients, stream, error);
    if (status == KJIT_OK)
      status = kjit_attention_backward(sample->runtime, way->tile ? configs : NULL, way->tile ? 3 : 0, &gradients.args,
                                       stream, error);
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
  struct trial_problem problems[CASES];
  for (size_t i = 0; i < CASES; i++) {
    kjit_attention_problem *asked = &problems[i].asked;
    problems[i] = cases[i].problem;
    if (cases[i].way.persistent) asked->heads_q = asked->heads_kv = sample->card.multiprocessors / 2 + 1;
    if (!asked->head_dim_v) asked->head_dim_v = asked->head_dim;
  }
  return sample_run_problems(sample, problems, CASES, run_problem);
}

int main(int argc, char **argv) {
  return sample_main(argc, argv, "sm_90", run_all);
}
