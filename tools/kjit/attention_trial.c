/* What `kjit run attention` and `kjit bench attention` share.
 *
 * 1. The command line is read into attention_trial_options.
 * 2. The problem is made from shape, type and mask, and the config that --flash or --config names, if one does. A
 * config decides what it has a field for and no option says.
 * 3. Card, runtime, random tensors and the float64 reference are set up.
 * 4. The kernel runs once, and its output is judged.
 *
 * One thread; the first GPU. */
#include "attention_trial.h"

#include "request_list.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/random.h"

int attention_trial_read(int argc, char **argv, const struct option *table, const char *usage) {
  struct option_list words = {0};
  int code = options_read(argc, argv, table, &words, usage);
  if (code < 0 && (words.count != 1 || strcmp(words.items[0], "attention") != 0))
    code = usage_error("%s: 'attention' is what can be named here; 'kjit %s --help' says more", argv[0], argv[0]);
  option_list_free(&words);
  return code;
}

static kjit_status read_scale(const char *text, double *out, kjit_error *error) {
  char *end;
  const double value = strtod(text, &end);
  if (end == text || *end != '\0' || !isfinite(value) || value <= 0)
    return error_say(error, KJIT_ERR_PARSE, "--scale %.80s: a finite number above 0 is expected", text);
  *out = value;
  return KJIT_OK;
}

/* Read everything of the problem that does not depend on a config. */
static kjit_status read_problem(struct trial_problem *problem, const struct attention_trial_options *options,
                                kjit_error *error) {
  *problem = (struct trial_problem){.asked = PROBLEM_OF(.dtype = KJIT_FP16, .heads_kv = (int64_t)options->heads_kv,
                                                        .head_dim_v = (int64_t)options->head_dim_v,
                                                        .flags = options->causal ? KJIT_ATTENTION_CAUSAL : 0),
                                    .lse = options->lse,
                                    .seed = options->seed};
  if (options->seed == UINT64_MAX) problem->seed = random_fresh_seed();
  if (options->shape == NULL)
    return error_say(error, KJIT_ERR_PARSE, "--shape B,S,H,D is needed: batch, sequence length, heads, head size");
  kjit_status status = problem_parse_shape(options->shape, problem, error);
  if (status == KJIT_OK && options->dtype) status = problem_parse_dtype(options->dtype, problem, error);
  if (status == KJIT_OK && options->layout) status = problem_parse_layout(options->layout, problem, error);
  if (status == KJIT_OK && options->scale) status = read_scale(options->scale, &problem->scale, error);
  return status == KJIT_OK ? problem_check(problem, error) : status;
}

/* Check that a kernel's name fits the problem. A config alone fits any problem of its type and head sizes; a name with
 * traits also says whether the problem is causal, grouped and how wide its heads are. */
static kjit_status match_traits(const kjit_config *named, const kjit_config *needed, kjit_error *error) {
  const kjit_config plain = kjit_flash_config_plain((const kjit_flash_config *)named->values);
  char text[KJIT_CONFIG_TEXT_MAX];
  if (kjit_config_compare(named, &plain) == 0 || kjit_config_compare(named, needed) == 0) return KJIT_OK;
  const kjit_status status = kjit_config_print(needed, 0, text, sizeof text, error);
  return status == KJIT_OK ? error_say(error, KJIT_ERR_INVALID_ARG, "--flash: the problem's kernel is %.400s", text)
                           : status;
}

static int32_t field_of(const kjit_config *config, const char *name) {
  int32_t value = 0;
  (void)!kjit_config_get(config, name, &value, NULL);
  return value;
}

/* Take type, mask and head_dim_v from the config, where no option says them. */
static void lend_fields(struct attention_trial *trial, const struct attention_trial_options *options, bool lend_v) {
  struct trial_problem *problem = &trial->problem;
  if (options->dtype == NULL) problem->asked.dtype = field_of(&trial->config, "dtype");
  if (options->head_dim_v == 0 && lend_v) problem->asked.head_dim_v = field_of(&trial->config, "head_dim_v");
  problem_set_causal(problem, problem_is_causal(problem) || field_of(&trial->config, "causal"));
}

static kjit_status read_flash(struct attention_trial *trial, const struct attention_trial_options *options,
                              kjit_error *error) {
  const kjit_config named = trial->config;
  lend_fields(trial, options, trial->problem.asked.head_dim == field_of(&named, "head_dim"));
  const kjit_flash_config *config = (const kjit_flash_config *)named.values;
  const kjit_status status = kjit_config_of_flash(config, &trial->problem.asked, &trial->config, error);
  return status == KJIT_OK ? match_traits(&named, &trial->config, error) : status;
}

/* Split "FAMILY FIELD=N,..." at its first blank. */
static kjit_status split_config(const char *given, const kjit_family **family, const char **text, kjit_error *error) {
  char name[64]; /* longer than the name of any family of kjit's own */
  const size_t bytes = strcspn(given, " ");
  *family = NULL;
  if (bytes < sizeof name) {
    memcpy(name, given, bytes);
    name[bytes] = '\0';
    *family = kjit_family_find(name);
  }
  *text = given + bytes + (given[bytes] == ' ');
  if (*family != NULL) return KJIT_OK;
  return error_say(error, KJIT_ERR_PARSE,
                   "--config: \"%.80s\": must begin with a family that "
                   "computes attention (attention_sm90, attention_decode_sm90, flash_forward) and a blank",
                   given);
}

/* Read the config that the caller names. The library refuses a config of attention_sm90 that contradicts the problem.
 */
static kjit_status read_config(struct attention_trial *trial, const struct attention_trial_options *options,
                               kjit_error *error) {
  const kjit_family *family = kjit_family_find("flash_forward");
  const char *text = options->flash;
  if (options->flash != NULL && options->config != NULL)
    return error_say(error, KJIT_ERR_PARSE, "--flash and --config: at most one of them");
  trial->is_chosen = options->flash == NULL && options->config == NULL;
  if (trial->is_chosen) return KJIT_OK;
  kjit_status status = KJIT_OK;
  if (options->config != NULL) status = split_config(options->config, &family, &text, error);
  if (status == KJIT_OK) status = kjit_config_parse(family, text, &trial->config, error);
  if (status == KJIT_OK) status = kjit_config_check(&trial->config, NULL, error);
  if (status != KJIT_OK) return status;
  if (options->flash != NULL) return read_flash(trial, options, error);
  lend_fields(trial, options, true);
  return KJIT_OK;
}

static kjit_status choose_config(struct attention_trial *trial, kjit_error *error) {
  if (!trial->is_chosen) return KJIT_OK;
  return kjit_attention_choose(trial->runtime, &trial->problem.asked, NULL, &trial->config, NULL, error);
}

static kjit_status open_gpu(struct attention_trial *trial, kjit_error *error) {
  kjit_status status = card_open(&trial->card, 0, error);
  if (status == KJIT_OK) status = open_runtime(&trial->runtime, error);
  trial->device.struct_size = sizeof trial->device;
  if (status == KJIT_OK) status = kjit_device_get_info(trial->runtime, -1, &trial->device, error);
  return status;
}

kjit_status attention_trial_open(struct attention_trial *trial, const struct attention_trial_options *options,
                                 kjit_error *error) {
  *trial = (struct attention_trial){0};
  kjit_status status = read_problem(&trial->problem, options, error);
  if (status == KJIT_OK) status = read_config(trial, options, error);
  if (status == KJIT_OK) status = open_gpu(trial, error);
  if (status == KJIT_OK) status = choose_config(trial, error);
  if (status == KJIT_OK) status = check_kernels_create(&trial->kernels, trial->runtime, &trial->card, error);
  if (status == KJIT_OK) status = attention_data_create(&trial->data, &trial->kernels, &trial->problem, error);
  if (status == KJIT_OK) status = attention_reference_create(&trial->reference, &trial->data, error);
  return status;
}

void attention_trial_close(struct attention_trial *trial) {
  attention_reference_destroy(&trial->reference, &trial->card);
  attention_data_destroy(&trial->data);
  check_kernels_destroy(&trial->kernels);
  kjit_runtime_destroy(trial->runtime);
  card_close(&trial->card);
}

/* The config to pass to the library: the caller's, or NULL when the library is to choose. */
static const kjit_config *config_given(const struct attention_trial *trial) {
  return trial->is_chosen ? NULL : &trial->config;
}

kjit_status attention_trial_judge(struct attention_trial *trial, struct attention_verdict *verdict, kjit_error *error) {
  *verdict = (struct attention_verdict){0};
  kjit_status status = attention_data_poison(&trial->data, trial->card.stream, error);
  if (status == KJIT_OK)
    status = kjit_attention_forward(trial->runtime, config_given(trial), &trial->data.args, trial->card.stream, error);
  if (status == KJIT_OK) status = card_synchronize(&trial->card, trial->card.stream, error);
  return status == KJIT_OK ? attention_judge(&trial->data, &trial->reference, verdict, error) : status;
}

kjit_status attention_trial_plan_create(struct attention_trial *trial, kjit_attention_plan **plan, kjit_error *error) {
  return kjit_attention_plan_create(plan, trial->runtime, config_given(trial), &trial->data.args, error);
}

static json_t *problem_json(const struct trial_problem *p) {
  return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:s, s:f, s:b}", "dtype",
                   p->asked.dtype == KJIT_BF16 ? "bf16" : "fp16", "batch", (json_int_t)p->asked.batch, "heads",
                   (json_int_t)p->asked.heads_q, "heads_kv", (json_int_t)problem_heads_kv(p), "seq_q",
                   (json_int_t)p->asked.seq_q, "seq_kv", (json_int_t)p->asked.seq_kv, "head_dim",
                   (json_int_t)p->asked.head_dim, "head_dim_v", (json_int_t)problem_head_dim_v(p), "causal",
                   (int)problem_is_causal(p), "layout", problem_layout_word(p->layout), "scale", problem_scale(p),
                   "lse", (int)p->lse);
}

json_t *attention_trial_json(const struct attention_trial *trial) {
  char config[KJIT_CONFIG_TEXT_MAX];
  request_print_config(&trial->config, config);
  char seed[24];
  snprintf(seed, sizeof seed, "%" PRIu64,
           trial->problem.seed); /* as text, as --seed takes it, because JSON's numbers cannot hold 64 bits */
  return json_pack("{s:s, s:s, s:s, s:s, s:o, s:s}", "device", trial->device.name, "arch", trial->device.arch, "family",
                   kjit_family_name(trial->config.family), "config", config, "problem", problem_json(&trial->problem),
                   "seed", seed);
}

/* JSON has no infinity and no NaN; such a number becomes null. */
static json_t *number_json(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

json_t *attention_verdict_json(const struct attention_trial *trial, const struct attention_verdict *v) {
  const json_int_t stray_words = v->traces.o_stray, stray_rows = v->traces.lse_stray;
  json_t *object =
      json_pack("{s:b, s:o, s:o, s:o, s:o, s:I, s:b, s:I}", "passed", (int)v->passed, "error", number_json(v->error),
                "error_allowed", number_json(v->bound), "error_16bit_reference", number_json(v->error16),
                "largest_reference", number_json(v->largest), "not_finite", (json_int_t)v->not_finite, "inputs_changed",
                (int)v->traces.inputs_changed, "stray_words", stray_words + stray_rows);
  if (trial->problem.lse) {
    json_object_set_new(object, "lse_error", number_json(v->lse_error));
    json_object_set_new(object, "lse_error_allowed", number_json(v->lse_bound));
  }
  return object;
}

void attention_trial_print(const struct attention_trial *trial, const struct attention_verdict *verdict) {
  char problem[PROBLEM_TEXT_MAX], numbers[ATTENTION_VERDICT_TEXT_MAX], config[KJIT_CONFIG_TEXT_MAX];
  request_print_config(&trial->config, config);
  problem_print(&trial->problem, problem);
  attention_verdict_print(verdict, &trial->problem, numbers);
  printf("device   %s, %s\nconfig   %s %s\nproblem  %s\nresult   %s\n", trial->device.name, trial->device.arch,
         kjit_family_name(trial->config.family), config, problem, numbers);
}
