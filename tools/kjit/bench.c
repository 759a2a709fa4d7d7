/* `kjit bench attention`: checks attention as `kjit run` does, then times it.
 *
 * 1. attention_trial.c makes problem, tensors and reference and judges one run.
 * 2. A plan is made once; each round runs it between two events (support/timer.c), with L2 emptied before it.
 * 3. Median, least and most are printed, with floating-point operations per second beside the card's limit.
 *
 * One thread. */
#include "attention_trial.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "support/statistics.h"
#include "support/timer.h"

#define MOST_ROUNDS 10000

static const char usage[] = "usage: kjit bench attention --shape B,S,H,D[,SKV] [OPTION]...\n\n"
                            "Checks attention on the first GPU as `kjit run` does, then times it with events:\n"
                            "median of the rounds, 2*B*H*S*(keys that a row sees on average)*(D+DV) floating-point\n"
                            "operations each (backward *(3*D+2*DV)), L2 emptied before.\n\n" ATTENTION_TRIAL_HELP
                            "  --rounds N             timed runs (30)\n"
                            "  --warmup N             runs before them (5)\n"
                            "  --keep-l2              leave in the L2 cache what the run before left there\n"
                            "\nExit codes: 0 done, 1 wrong result, 2 usage, 3 no usable GPU or driver, 4 no NVRTC.\n";

struct bench_options {
  struct attention_trial_options trial;
  uint64_t rounds, warmup;
  bool keep_l2;
};

/* Dense fp16 multiply-adds with fp32 sums, in floating-point operations for each SM and clock, as they follow from the
 * data sheets. GeForce cards of 8.6, 8.9 and 12.0 reach half of it. 0 for an unknown architecture. */
static double flops_per_clock(const char *arch) {
  static const struct {
    const char *arch;
    double flops;
  } table[] = {{"sm_80", 2048},  {"sm_86", 1024},  {"sm_87", 1024},  {"sm_89", 1024}, {"sm_90", 4096},
               {"sm_100", 8192}, {"sm_103", 8192}, {"sm_120", 1024}, {"sm_121", 1024}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (strcmp(table[i].arch, arch) == 0) return table[i].flops;
  return 0;
}

/* Operations per second at the clock that the driver states; 0 when the architecture is unknown. */
static double card_limit(const kjit_device_info *device) {
  return flops_per_clock(device->arch) * device->multiprocessors * device->clock_khz * 1e3;
}

static kjit_status run_plan(void *user, CUstream stream, kjit_error *error) {
  const kjit_attention_plan *plan = user;
  return kjit_attention_plan_run(plan, stream, error);
}

static kjit_status time_rounds(const struct timer *timer, kjit_attention_plan *plan,
                               const struct bench_options *options, double *milliseconds, kjit_error *error) {
  double ignored;
  kjit_status status = KJIT_OK;
  for (uint64_t i = 0; i < options->warmup && status == KJIT_OK; i++)
    status = timer_run(timer, run_plan, plan, &ignored, error);
  for (uint64_t i = 0; i < options->rounds && status == KJIT_OK; i++)
    status = timer_run(timer, run_plan, plan, &milliseconds[i], error);
  return status;
}

static kjit_status measure(struct attention_trial *trial, const struct bench_options *options,
                           struct statistics *statistics, kjit_error *error) {
  static double milliseconds[MOST_ROUNDS];
  struct timer timer = {0};
  kjit_attention_plan *plan = NULL;
  kjit_status status = timer_create(&timer, &trial->card, !options->keep_l2, error);
  if (status == KJIT_OK) status = attention_trial_plan_create(trial, &plan, error);
  if (status == KJIT_OK) status = time_rounds(&timer, plan, options, milliseconds, error);
  if (status == KJIT_OK) *statistics = statistics_of(milliseconds, options->rounds);
  kjit_attention_plan_destroy(plan);
  timer_destroy(&timer);
  return status;
}

static int report_json(const struct attention_trial *trial, const struct trial_verdict *verdict,
                       const struct statistics *ms, double rate, double limit) {
  json_t *object = attention_trial_json(trial);
  json_t *numbers =
      json_pack("{s:b, s:f, s:f, s:f, s:I, s:f}", "passed", (int)verdict->passed, "median_ms", ms->median, "least_ms",
                ms->least, "most_ms", ms->most, "rounds", (json_int_t)ms->count, "tflops", rate / 1e12);
  json_object_set_new(numbers, "fraction_of_limit", limit > 0 ? json_real(rate / limit) : json_null());
  json_object_update(object, numbers);
  json_decref(numbers);
  return print_json(object);
}

static int report(const struct attention_trial *trial, const struct trial_verdict *verdict, const struct statistics *ms,
                  bool json) {
  const double rate = attention_trial_flops(trial) / (ms->median * 1e-3), limit = card_limit(&trial->device);
  if (json) return report_json(trial, verdict, ms, rate, limit);
  attention_trial_print(trial, verdict);
  printf("time     median %.4f ms, least %.4f, most %.4f, of %zu\n", ms->median, ms->least, ms->most, ms->count);
  printf("speed    %.1f TFLOP/s", rate / 1e12);
  if (limit > 0) printf(", %.1f %% of the %.0f that the card's clock allows", 100 * rate / limit, limit / 1e12);
  return print_text("\n");
}

static int bench_main(int argc, char **argv) {
  struct bench_options options = {.trial.seed = UINT64_MAX, .rounds = 30, .warmup = 5};
  const struct option table[] = {ATTENTION_TRIAL_OPTIONS(options.trial),
                                 {OPTION_NUMBER, "--rounds", &options.rounds, 1, MOST_ROUNDS},
                                 {OPTION_NUMBER, "--warmup", &options.warmup, 0, MOST_ROUNDS},
                                 {OPTION_FLAG, "--keep-l2", &options.keep_l2, 0, 0},
                                 {OPTION_END, NULL, NULL, 0, 0}};
  int code = attention_trial_read(argc, argv, table, usage);
  if (code >= 0) return code;
  struct attention_trial trial;
  struct trial_verdict verdict = {0};
  struct statistics ms = {0};
  kjit_error error = {0};
  kjit_status status = attention_trial_open(&trial, &options.trial, &error);
  if (status == KJIT_OK) status = attention_trial_judge(&trial, &verdict, &error);
  if (status == KJIT_OK) status = measure(&trial, &options, &ms, &error);
  code = status == KJIT_OK ? report(&trial, &verdict, &ms, options.trial.json) : report_error(&error);
  if (code == EXIT_DONE && !verdict.passed) code = EXIT_FAILED;
  attention_trial_close(&trial);
  return code;
}

const struct command command_bench = {.name = "bench", .summary = "time attention on the GPU", .run = bench_main};
