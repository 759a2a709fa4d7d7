/* What `kjit run attention` and `kjit bench attention` share: their options, and a problem on a GPU. */
#ifndef KJIT_TOOLS_ATTENTION_TRIAL_H
#define KJIT_TOOLS_ATTENTION_TRIAL_H

#include <stdbool.h>

#include "command.h"
#include "support/attention_check.h"
#include "support/attention_gradients.h"

#define ATTENTION_TRIAL_HELP                                                                                           \
  "  --shape B,S,H,D[,SKV]  batch, sequence length, heads, head size, key sequence length (S)\n"                       \
  "  --dtype fp16|bf16      element type (fp16, or that of --flash)\n"                                                 \
  "  --heads-kv N           heads of k and v; divides H (H)\n"                                                         \
  "  --head-dim-v N         head size of v and o (D)\n"                                                                \
  "  --causal               row i sees keys up to i + SKV - S\n"                                                       \
  "  --flash \"SHORT FORM\"   run flash_forward with this config (family and config are chosen)\n"                     \
  "  --config \"FAMILY KEY=N,...\"  run this config of a family that computes attention: attention_sm90, ...;\n"       \
  "                         its dtype, causal and head_dim_v are the problem's\n"                                      \
  "  --layout LAYOUT        bshd, bhsd, padded, packed or shared_kv (bshd)\n"                                          \
  "  --scale X              softmax scale (1/sqrt(D))\n"                                                               \
  "  --lse                  also the log-sum-exp\n"                                                                    \
  "  --backward             the gradients dq, dk and dv, by kernels that are chosen\n"                                 \
  "  --seed N               of the random inputs (fresh, and printed)\n"                                               \
  "  --json                 one JSON object on stdout\n"

/* The command line. */
struct attention_trial_options {
  const char *shape, *dtype, *flash, *config, *layout, *scale;
  bool causal, lse, json, backward;
  uint64_t heads_kv, head_dim_v; /* 0: not given               */
  uint64_t seed;                 /* UINT64_MAX: a fresh one */
};

/* The rows of an option table that fill `o`; the caller adds OPTION_END. */
#define ATTENTION_TRIAL_OPTIONS(o)                                                                                     \
  {OPTION_TEXT, "--shape", &(o).shape, 0, 0}, {OPTION_TEXT, "--dtype", &(o).dtype, 0, 0},                              \
      {OPTION_TEXT, "--flash", &(o).flash, 0, 0}, {OPTION_TEXT, "--config", &(o).config, 0, 0},                        \
      {OPTION_NUMBER, "--heads-kv", &(o).heads_kv, 1, 65535},                                                          \
      {OPTION_NUMBER, "--head-dim-v", &(o).head_dim_v, 1, 256}, {OPTION_FLAG, "--causal", &(o).causal, 0, 0},          \
      {OPTION_TEXT, "--layout", &(o).layout, 0, 0}, {OPTION_TEXT, "--scale", &(o).scale, 0, 0},                        \
      {OPTION_FLAG, "--lse", &(o).lse, 0, 0}, {OPTION_FLAG, "--backward", &(o).backward, 0, 0},                        \
      {OPTION_NUMBER, "--seed", &(o).seed, 0, UINT64_MAX - 1}, {                                                       \
    OPTION_FLAG, "--json", &(o).json, 0, 0                                                                             \
  }

/* Everything that a run needs on the first GPU: tensors, reference, config. */
struct attention_trial {
  kjit_runtime *runtime;
  struct card card;
  kjit_device_info device;
  struct check_kernels kernels;
  struct trial_problem problem;
  bool is_chosen;     /* no option names a config: the library chooses */
  kjit_config config; /* what runs */
  struct attention_data data;
  struct attention_reference reference;
  bool is_backward;           /* gradients are computed: the members below are used in place of config and reference */
  struct gradients gradients; /* of a problem so large that they have no reference: unchecked                        */
  kjit_config backward_configs[KJIT_ATTENTION_BACKWARD_KERNELS_MAX];
  size_t backward_count;
};

/* What a run was found to be: of the forward or the backward call. */
struct trial_verdict {
  bool passed;
  struct attention_verdict forward;
  struct gradients_verdict backward;
};

/* Read argv[0] ("run" or "bench") and argv[1..], whose first word must be "attention". Returns -1 to go on, else the
 * exit code; errors have been printed. */
int attention_trial_read(int argc, char **argv, const struct option *table, const char *usage);

/* Set the trial up. KJIT_ERR_PARSE and KJIT_ERR_INVALID_ARG for wrong options; KJIT_ERR_NO_DRIVER without a GPU. */
kjit_status attention_trial_open(struct attention_trial *trial, const struct attention_trial_options *options,
                                 kjit_error *error);
void attention_trial_close(struct attention_trial *trial); /* accepts a trial whose opening failed */

/* Run the kernel once and judge its output. */
kjit_status attention_trial_judge(struct attention_trial *trial, struct trial_verdict *verdict, kjit_error *error);

/* 2 * pairs * columns for each product of the call, each once: 2 products forward, 5 backward. */
double attention_trial_flops(const struct attention_trial *trial);

/* Make a plan, for timing. */
kjit_status attention_trial_plan_create(struct attention_trial *trial, kjit_attention_plan **plan, kjit_error *error);

/* Device, config and problem, which both commands report. */
json_t *attention_trial_json(const struct attention_trial *trial);

/* The verdict's numbers. */
json_t *attention_verdict_json(const struct attention_trial *trial, const struct trial_verdict *verdict);

/* Print the trial and its verdict for people, on stdout. */
void attention_trial_print(const struct attention_trial *trial, const struct trial_verdict *verdict);

#endif
