/* `kjit run attention`: computes attention once on the first GPU with random inputs and compares the result with a
 * float64 reference. attention_trial.c reads the options, makes tensors and reference and judges; this file prints the
 * verdict and turns it into an exit code. One thread. */
#include "attention_trial.h"

#include <stdbool.h>

static const char usage[] = "usage: kjit run attention --shape B,S,H,D[,SKV] [OPTION]...\n\n"
                            "Runs attention on the first GPU with random inputs and compares the result with\n"
                            "float64. Passes if the largest error is at most twice that of eager attention in the\n"
                            "16-bit type, plus one rounding.\n\n" ATTENTION_TRIAL_HELP
                            "\nExit codes: 0 right, 1 wrong, 2 usage, 3 no usable GPU or driver, 4 no NVRTC.\n";

static int report(const struct attention_trial *trial, const struct trial_verdict *verdict, bool json) {
  int code = EXIT_DONE;
  if (json) {
    json_t *object = attention_trial_json(trial);
    json_t *numbers = attention_verdict_json(trial, verdict);
    json_object_update(object, numbers);
    json_decref(numbers);
    code = print_json(object);
  } else {
    attention_trial_print(trial, verdict);
  }
  return code == EXIT_DONE && !verdict->passed ? EXIT_FAILED : code;
}

static int run_main(int argc, char **argv) {
  struct attention_trial_options options = {.seed = UINT64_MAX};
  const struct option table[] = {ATTENTION_TRIAL_OPTIONS(options), {OPTION_END, NULL, NULL, 0, 0}};
  int code = attention_trial_read(argc, argv, table, usage);
  if (code >= 0) return code;
  struct attention_trial trial;
  struct trial_verdict verdict;
  kjit_error error = {0};
  kjit_status status = attention_trial_open(&trial, &options, &error);
  if (status == KJIT_OK) status = attention_trial_judge(&trial, &verdict, &error);
  code = status == KJIT_OK ? report(&trial, &verdict, options.json) : report_error(&error);
  attention_trial_close(&trial);
  return code;
}

const struct command command_run = {
    .name = "run", .summary = "run attention on the GPU and check it against float64", .run = run_main};
