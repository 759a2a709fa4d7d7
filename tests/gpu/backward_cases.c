#include "backward_cases.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/test.h"

#define MOST_FAILURES_PRINTED 20
#define MOST_THREADS          32

static uint32_t wanted_of(const struct backward_case *one) {
  const uint32_t all = KJIT_GRADIENT_Q | KJIT_GRADIENT_K | KJIT_GRADIENT_V;
  return one->choices.wanted ? one->choices.wanted : all;
}

/* The three kernels that sum dq. */
static kjit_status take_sums(const struct backward_case *one, kjit_config *configs, size_t *count, kjit_error *error) {
  static const int32_t passes[] = {8, 7, 16};
  const kjit_attention_problem *asked = &one->problem.asked;
  kjit_status status = KJIT_OK;
  for (*count = 0; *count < 3 && status == KJIT_OK; ++*count) {
    kjit_attention_backward_sm90_config config = {
        .dtype = asked->dtype,
        .head_dim = (int32_t)asked->head_dim,
        .head_dim_v = (int32_t)(asked->head_dim_v ? asked->head_dim_v : asked->head_dim),
        .causal = asked->flags & KJIT_ATTENTION_CAUSAL ? 1 : 0,
        .pass = passes[*count],
        .consumers = 2,
        .tile = one->sums,
        .stages = 2,
        .value_stages = 2,
        .pipelined = !one->serial,
        .direct = one->direct,
        .staggered = one->staggered,
        .persistent = one->persistent,
        .stores = one->stores};
    configs[*count] = (kjit_config){.family = kjit_family_find("attention_backward_sm90")};
    memcpy(configs[*count].values, &config, sizeof config);
    status = kjit_config_check(&configs[*count], "sm_90a", error);
    if (status == KJIT_OK) configs[*count] = kjit_config_canonical(&configs[*count]);
  }
  return status;
}

static kjit_status choose(const struct gpu_fixture *fixture, const struct backward_case *one, kjit_config *configs,
                          size_t *count, kjit_error *error) {
  const char *arch = one->arch ? one->arch : strcmp(fixture->card.arch, "sm_90") == 0 ? "sm_90a" : fixture->card.arch;
  if (one->sums) return take_sums(one, configs, count, error);
  kjit_attention_problem asked = one->problem.asked;
  if (!one->in_any_order) asked.flags |= KJIT_ATTENTION_DETERMINISTIC;
  return kjit_attention_backward_choose(&asked, wanted_of(one), arch, configs, count, error);
}

/* ---- Compiling ---- */

struct builds {
  struct gpu_fixture *fixture;
  const struct backward_case *cases;
  size_t count;
  atomic_size_t next;
};

static void build_config(struct gpu_fixture *fixture, const kjit_config *config) {
  char arch[32];
  kjit_artifact *artifact = NULL;
  /* A device is compiled for with its own features where a kernel needs them. */
  snprintf(arch, sizeof arch, "%s%s", fixture->card.arch,
           strncmp(kjit_family_name(config->family), "flash_", 6) == 0 ? "" : "a");
  if (kjit_config_build(fixture->runtime, config, arch, 0, &artifact, NULL) != KJIT_OK) artifact = NULL;
  kjit_artifact_release(artifact);
}

/* The forward call's kernel, then the backward call's. A build that fails is met again by the run, which says so. */
static void *build_some(void *user) {
  struct builds *builds = user;
  size_t i;
  while ((i = atomic_fetch_add(&builds->next, 1)) < builds->count) {
    kjit_config configs[KJIT_ATTENTION_BACKWARD_KERNELS_MAX];
    size_t count = 0;
    const char *arch = strcmp(builds->fixture->card.arch, "sm_90") == 0 ? "sm_90a" : builds->fixture->card.arch;
    if (kjit_attention_choose(NULL, &builds->cases[i].problem.asked, arch, configs, NULL, NULL) == KJIT_OK)
      build_config(builds->fixture, configs);
    if (choose(builds->fixture, &builds->cases[i], configs, &count, NULL) != KJIT_OK) continue;
    for (size_t k = 0; k < count; k++)
      build_config(builds->fixture, &configs[k]);
  }
  return NULL;
}

static void build_all(struct gpu_fixture *fixture, const struct backward_case *cases, size_t count) {
  struct builds builds = {.fixture = fixture, .cases = cases, .count = count};
  pthread_t helpers[MOST_THREADS];
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  size_t started = 0;
  while (started + 1 < MOST_THREADS && (long)started + 1 < processors &&
         pthread_create(&helpers[started], NULL, build_some, &builds) == 0)
    started++;
  build_some(&builds);
  for (size_t i = 0; i < started; i++)
    pthread_join(helpers[i], NULL);
}

/* ---- Running ---- */

kjit_status backward_run(struct gpu_fixture *fixture, const struct backward_case *one,
                         const struct gradients *gradients, kjit_error *error) {
  kjit_config configs[KJIT_ATTENTION_BACKWARD_KERNELS_MAX];
  size_t count = 0;
  CUstream stream = fixture->card.stream;
  const bool named = one->arch || one->sums;
  kjit_attention_backward_args args = gradients->args;
  if (!one->in_any_order) args.flags |= KJIT_ATTENTION_DETERMINISTIC;
  kjit_status status = gradients_poison(gradients, stream, error);
  if (status == KJIT_OK && named) status = choose(fixture, one, configs, &count, error);
  if (status == KJIT_OK)
    status = kjit_attention_backward(fixture->runtime, named ? configs : NULL, count, &args, stream, error);
  return status == KJIT_OK ? card_synchronize(&fixture->card, stream, error) : status;
}

void backward_case_create(struct gpu_fixture *fixture, const struct backward_case *one, struct attention_data *data,
                          struct gradients *gradients) {
  kjit_error error = {0};
  struct trial_problem problem = one->problem;
  problem.lse = 1;
  *gradients = (struct gradients){0};
  kjit_status status = attention_data_create(data, &fixture->kernels, &problem, &error);
  if (status == KJIT_OK)
    status = kjit_attention_forward(fixture->runtime, NULL, &data->args, fixture->card.stream, &error);
  if (status == KJIT_OK) status = gradients_create(gradients, data, &one->choices, &error);
  if (status == KJIT_OK) status = gradients_reference(gradients, &error);
  assert_status(KJIT_OK, status, &error);
}

static void describe(const struct backward_case *one, char *text, size_t capacity) {
  char problem[PROBLEM_TEXT_MAX];
  problem_print(&one->problem, problem);
  snprintf(text, capacity,
           "%s wanted=%u dlse=%d expanded=%d arch=%s sums=%d serial=%d direct=%d staggered=%d any_order=%d", problem,
           wanted_of(one), one->choices.dlse, one->choices.expanded, one->arch ? one->arch : "chosen", (int)one->sums,
           one->serial, one->direct, one->staggered, one->in_any_order);
}

/* Right, and the second run's bits are the first one's. */
static bool run_case(struct gpu_fixture *fixture, const struct backward_case *one, bool print) {
  struct attention_data data;
  struct gradients gradients;
  struct gradients_verdict verdict = {0};
  char what[PROBLEM_TEXT_MAX + 120], numbers[GRADIENTS_VERDICT_TEXT_MAX];
  kjit_error error = {0};
  uint64_t first = 0, second = 0;
  backward_case_create(fixture, one, &data, &gradients);
  kjit_status status = backward_run(fixture, one, &gradients, &error);
  if (status == KJIT_OK) status = gradients_judge(&gradients, &verdict, &error);
  if (status == KJIT_OK) status = gradients_digest(&gradients, &first, &error);
  if (status == KJIT_OK) status = backward_run(fixture, one, &gradients, &error);
  if (status == KJIT_OK) status = gradients_digest(&gradients, &second, &error);
  gradients_destroy(&gradients);
  attention_data_destroy(&data);
  fixture->cases_run++;
  const bool alike = first == second || one->in_any_order;
  const bool right = status == KJIT_OK && verdict.passed && alike;
  if (right || !print) return right;
  describe(one, what, sizeof what);
  gradients_verdict_print(&verdict, numbers);
  print_error("%s\n  %s%s\n", what, status == KJIT_OK ? numbers : error.message,
              alike ? "" : "; the second run's bits are not the first one's");
  return false;
}

void backward_run_cases(struct gpu_fixture *fixture, const struct backward_case *cases, size_t count) {
  size_t failures = 0;
  build_all(fixture, cases, count);
  for (size_t i = 0; i < count; i++)
    failures += !run_case(fixture, &cases[i], failures < MOST_FAILURES_PRINTED);
  if (failures) print_error("%zu of %zu cases are not right\n", failures, count);
  assert_int_equal(0, failures);
}
