/* Runs candidates on the first GPU.
 *
 * 1. stage_probe() asks what the GPU is, in a forked process, because a process that has called the driver cannot fork
 *    compilers any more.
 * 2. stage_open() sets card, runtime and checking kernels up, after all compiling is done.
 * 3. stage_set() puts a problem's random tensors and float64 reference on the card.
 * 4. stage_time() and stage_check() time one entrant and judge its result; each plan is made on first use.
 *
 * One thread. */
#include "tune_stage.h"

#include "command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/attention_check.h"
#include "support/random.h"
#include "support/timer.h"

struct tune_stage {
  kjit_runtime *runtime;
  struct card card;
  struct check_kernels kernels;
  struct timer timer;
  struct attention_data data;
  struct attention_reference reference;
  const struct stage_entrant *entrants;
  kjit_attention_plan **plans; /* plans of the entrants; NULL until the first run */
  size_t count;
};

/* ---- One problem ---- */

static void clear(struct tune_stage *stage) {
  for (size_t i = 0; i < stage->count; i++)
    kjit_attention_plan_destroy(stage->plans[i]);
  free(stage->plans);
  stage->plans = NULL;
  stage->count = 0;
  attention_reference_destroy(&stage->reference, &stage->card);
  attention_data_destroy(&stage->data);
}

kjit_status stage_set(struct tune_stage *stage, const kjit_attention_problem *problem,
                      const struct stage_entrant *entrants, size_t count, kjit_error *error) {
  const struct trial_problem trial = {.asked = *problem, .seed = random_fresh_seed()};
  clear(stage);
  stage->plans = calloc(count, sizeof *stage->plans);
  if (stage->plans == NULL) return error_say(error, KJIT_ERR_NO_MEMORY, "out of memory for %zu plans", count);
  stage->count = count;
  stage->entrants = entrants;
  const kjit_status status = attention_data_create(&stage->data, &stage->kernels, &trial, error);
  return status == KJIT_OK ? attention_reference_create(&stage->reference, &stage->data, error) : status;
}

static kjit_status make_plan(struct tune_stage *stage, size_t index, kjit_error *error) {
  kjit_attention_plan **plan = &stage->plans[index];
  if (*plan != NULL) return KJIT_OK;
  return kjit_attention_plan_create(plan, stage->runtime, stage->entrants[index].config, &stage->data.args, error);
}

static kjit_status run_plan(void *user, CUstream stream, kjit_error *error) {
  const kjit_attention_plan *plan = user;
  return kjit_attention_plan_run(plan, stream, error);
}

kjit_status stage_time(void *user, size_t entrant, double *microseconds, kjit_error *error) {
  struct tune_stage *stage = user;
  double milliseconds = 0;
  kjit_status status = make_plan(stage, entrant, error);
  if (status == KJIT_OK) status = timer_run(&stage->timer, run_plan, stage->plans[entrant], &milliseconds, error);
  *microseconds = 1000 * milliseconds;
  return status;
}

kjit_status stage_check(void *user, size_t entrant, int *right, kjit_error *error) {
  struct tune_stage *stage = user;
  struct attention_verdict verdict = {0};
  CUstream stream = stage->card.stream;
  kjit_status status = make_plan(stage, entrant, error);
  if (status == KJIT_OK) status = attention_data_poison(&stage->data, stream, error);
  if (status == KJIT_OK) status = run_plan(stage->plans[entrant], stream, error);
  if (status == KJIT_OK) status = card_synchronize(&stage->card, stream, error);
  if (status == KJIT_OK) status = attention_judge(&stage->data, &stage->reference, &verdict, error);
  *right = status == KJIT_OK && verdict.passed;
  return status;
}

/* ---- The card ---- */

kjit_status stage_open(struct tune_stage **out, kjit_error *error) {
  struct tune_stage *stage = calloc(1, sizeof *stage);
  *out = NULL;
  if (stage == NULL) return error_say(error, KJIT_ERR_NO_MEMORY, "out of memory for the tensors' bookkeeping");
  kjit_status status = card_open(&stage->card, 0, error);
  if (status == KJIT_OK) status = open_runtime(&stage->runtime, error);
  if (status == KJIT_OK) status = check_kernels_create(&stage->kernels, stage->runtime, &stage->card, error);
  if (status == KJIT_OK) status = timer_create(&stage->timer, &stage->card, 1, error);
  if (status == KJIT_OK)
    *out = stage;
  else
    stage_close(stage);
  return status;
}

void stage_close(struct tune_stage *stage) {
  if (stage == NULL) return;
  clear(stage);
  timer_destroy(&stage->timer);
  check_kernels_destroy(&stage->kernels);
  kjit_runtime_destroy(stage->runtime);
  card_close(&stage->card);
  free(stage);
}

/* ---- Asking what it is ---- */

struct answer {
  kjit_error error;
  kjit_device_info device;
};

static void ask(struct answer *answer) {
  kjit_runtime *runtime = NULL;
  *answer = (struct answer){.device.struct_size = sizeof answer->device};
  if (open_runtime(&runtime, &answer->error) == KJIT_OK)
    (void)!kjit_device_get_info(runtime, 0, &answer->device, &answer->error);
  kjit_runtime_destroy(runtime);
}

/* Read the whole answer, in as many pieces as the pipe gives. */
static bool read_answer(int from, struct answer *answer) {
  size_t taken = 0;
  while (taken < sizeof *answer) {
    const ssize_t piece = read(from, (char *)answer + taken, sizeof *answer - taken);
    if (piece < 0 && errno == EINTR) continue;
    if (piece <= 0) return false;
    taken += (size_t)piece;
  }
  return true;
}

static void answer_to(int to) {
  struct answer answer;
  ask(&answer);
  const ssize_t written =
      write(to, &answer, sizeof answer); /* one write, because the answer is smaller than a pipe's buffer */
  _exit(written == (ssize_t)sizeof answer ? EXIT_DONE : EXIT_FAILED);
}

kjit_status stage_probe(kjit_device_info *device, kjit_error *error) {
  struct answer answer;
  int ends[2];
  if (pipe(ends) != 0) return error_say(error, KJIT_ERR_IO, "pipe: %s", strerror(errno));
  const pid_t child = fork();
  if (child == 0) answer_to(ends[1]);
  close(ends[1]);
  const bool answered = child > 0 && read_answer(ends[0], &answer);
  close(ends[0]);
  if (child > 0) waitpid(child, NULL, 0);
  if (!answered)
    return error_say(error, KJIT_ERR_NO_DRIVER, "the process that asked the driver for the GPU ended early");
  if (answer.error.status != KJIT_OK) {
    *error = answer.error;
    return (kjit_status)error->status;
  }
  *device = answer.device;
  return KJIT_OK;
}
