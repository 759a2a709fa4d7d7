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
                                    .lse = options->lse || options->backward,
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
  return error_say(
      error, KJIT_ERR_PARSE,
      "--config: \"%.80s\": must begin with a family that "
      "computes attention (attention_sm90, attention_decode_sm90, attention_short_sm90, attention_serving_sm90, "
      "flash_forward) and a blank",
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

/* The kernels of a backward call are chosen; a config that is named would be a forward kernel's. */
static kjit_status choose_backward(struct attention_trial *trial, kjit_error *error) {
  const uint32_t all = KJIT_GRADIENT_Q | KJIT_GRADIENT_K | KJIT_GRADIENT_V;
  return kjit_attention_backward_choose(&trial->problem.asked, all, trial->device.arch_specific,
                                        trial->backward_configs, &trial->backward_count, error);
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

/* The forward call, whose results the backward call reads, then gradients and their references. */
static kjit_status open_backward(struct attention_trial *trial, kjit_error *error) {
  const struct gradient_choices choices = {.dlse = true, .seed = trial->problem.seed + 1};
  kjit_status status = kjit_attention_forward(trial->runtime, NULL, &trial->data.args, trial->card.stream, error);
  if (status == KJIT_OK) status = choose_backward(trial, error);
  if (status == KJIT_OK) status = gradients_create(&trial->gradients, &trial->data, &choices, error);
  if (status == KJIT_OK) status = gradients_reference(&trial->gradients, error);
  if (status != KJIT_ERR_UNSUPPORTED || !trial->gradients.data) return status;
  *error = (kjit_error){0}; /* too large to be checked: `kjit bench` times it all the same */
  return KJIT_OK;
}

kjit_status attention_trial_open(struct attention_trial *trial, const struct attention_trial_options *options,
                                 kjit_error *error) {
  *trial = (struct attention_trial){.is_backward = options->backward};
  if (options->backward && (options->flash || options->config))
    return error_say(error, KJIT_ERR_PARSE,
                     "--backward: takes neither --flash nor --config, which name forward kernels");
  kjit_status status = read_problem(&trial->problem, options, error);
  if (status == KJIT_OK) status = read_config(trial, options, error);
  if (status == KJIT_OK) status = open_gpu(trial, error);
  if (status == KJIT_OK) status = choose_config(trial, error);
  if (status == KJIT_OK) status = check_kernels_create(&trial->kernels, trial->runtime, &trial->card, error);
  if (status == KJIT_OK) status = attention_data_create(&trial->data, &trial->kernels, &trial->problem, error);
  if (status == KJIT_OK && trial->is_backward) return open_backward(trial, error);
  if (status == KJIT_OK) status = attention_reference_create(&trial->reference, &trial->data, error);
  return status;
}

void attention_trial_close(struct attention_trial *trial) {
  gradients_destroy(&trial->gradients);
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

static kjit_status run_backward(struct attention_trial *trial, kjit_error *error) {
  kjit_status status = gradients_poison(&trial->gradients, trial->card.stream, error);
  if (status == KJIT_OK)
    status = kjit_attention_backward(trial->runtime, NULL, 0, &trial->gradients.args, trial->card.stream, error);
  return status == KJIT_OK ? card_synchronize(&trial->card, trial->card.stream, error) : status;
}

static kjit_status run_forward(struct attention_trial *trial, kjit_error *error) {
  kjit_status status = attention_data_poison(&trial->data, trial->card.stream, error);
  if (status == KJIT_OK)
    status = kjit_attention_forward(trial->runtime, config_given(trial), &trial->data.args, trial->card.stream, error);
  return status == KJIT_OK ? card_synchronize(&trial->card, trial->card.stream, error) : status;
}

kjit_status attention_trial_judge(struct attention_trial *trial, struct trial_verdict *verdict, kjit_error *error) {
  *verdict = (struct trial_verdict){0};
  kjit_status status = trial->is_backward ? run_backward(trial, error) : run_forward(trial, error);
  if (status != KJIT_OK) return status;
  if (!trial->is_backward) {
    status = attention_judge(&trial->data, &trial->reference, &verdict->forward, error);
    verdict->passed = verdict->forward.passed;
  } else if (trial->gradients.has_reference) {
    status = gradients_judge(&trial->gradients, &verdict->backward, error);
    verdict->passed = verdict->backward.passed;
  } else {
    verdict->passed = true;
  }
  return status;
}

double attention_trial_flops(const struct attention_trial *trial) {
  const struct trial_problem *p = &trial->problem;
  const double forward = problem_flops(p); /* one product with head_dim columns, one with head_dim_v */
  const double columns = (double)(p->asked.head_dim + problem_head_dim_v(p));
  if (!trial->is_backward) return forward;
  return forward * (double)(3 * p->asked.head_dim + 2 * problem_head_dim_v(p)) / columns;
}

kjit_status attention_trial_plan_create(struct attention_trial *trial, kjit_attention_plan **plan, kjit_error *error) {
  if (trial->is_backward)
    return kjit_attention_backward_plan_create(plan, trial->runtime, NULL, 0, &trial->gradients.args, error);
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

/* The kernels of a backward call, as a JSON array of "family config". */
static json_t *backward_json(const struct attention_trial *trial) {
  json_t *array = json_array();
  for (size_t i = 0; i < trial->backward_count; i++) {
    char config[KJIT_CONFIG_TEXT_MAX];
    request_print_config(&trial->backward_configs[i], config);
    json_array_append_new(array, json_sprintf("%s %s", kjit_family_name(trial->backward_configs[i].family), config));
  }
  return array;
}

json_t *attention_trial_json(const struct attention_trial *trial) {
  char config[KJIT_CONFIG_TEXT_MAX];
  request_print_config(&trial->config, config);
  char seed[24];
  snprintf(seed, sizeof seed, "%" PRIu64,
           trial->problem.seed); /* as text, as --seed takes it, because JSON's numbers cannot hold 64 bits */
  json_t *object = json_pack("{s:s, s:s, s:s, s:s, s:o, s:s}", "device", trial->device.name, "arch", trial->device.arch,
                             "family", kjit_family_name(trial->config.family), "config", config, "problem",
                             problem_json(&trial->problem), "seed", seed);
  if (trial->is_backward) json_object_set_new(object, "backward", backward_json(trial));
  return object;
}

/* JSON has no infinity and no NaN; such a number becomes null. */
static json_t *number_json(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

static json_t *forward_verdict_json(const struct attention_trial *trial, const struct attention_verdict *v) {
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

static json_t *gradient_verdict_json(const struct gradient_verdict *v) {
  return json_pack("{s:b, s:o, s:o, s:o, s:o, s:I, s:I}", "passed", (int)v->passed, "error", number_json(v->error),
                   "error_allowed", number_json(v->bound), "error_16bit_reference", number_json(v->error16),
                   "largest_reference", number_json(v->largest), "not_finite", (json_int_t)v->not_finite, "stray_words",
                   (json_int_t)v->stray);
}

json_t *attention_verdict_json(const struct attention_trial *trial, const struct trial_verdict *v) {
  if (!trial->is_backward) return forward_verdict_json(trial, &v->forward);
  json_t *object = json_pack("{s:b, s:b, s:b}", "passed", (int)v->passed, "checked",
                             (int)trial->gradients.has_reference, "inputs_changed", (int)v->backward.inputs_changed);
  static const char *const names[GRADIENT_COUNT] = {"dq", "dk", "dv"};
  for (int i = 0; i < GRADIENT_COUNT && trial->gradients.has_reference; i++)
    json_object_set_new(object, names[i], gradient_verdict_json(&v->backward.each[i]));
  return object;
}

static void print_kernel(const kjit_config *kernel) {
  char config[KJIT_CONFIG_TEXT_MAX];
  request_print_config(kernel, config);
  printf("config   %s %s\n", kjit_family_name(kernel->family), config);
}

void attention_trial_print(const struct attention_trial *trial, const struct trial_verdict *verdict) {
  char problem[PROBLEM_TEXT_MAX], numbers[GRADIENTS_VERDICT_TEXT_MAX] = "not checked: too many pairs for a reference";
  problem_print(&trial->problem, problem);
  printf("device   %s, %s\n", trial->device.name, trial->device.arch);
  if (!trial->is_backward) {
    print_kernel(&trial->config);
    attention_verdict_print(&verdict->forward, &trial->problem, numbers);
  } else {
    for (size_t i = 0; i < trial->backward_count; i++)
      print_kernel(&trial->backward_configs[i]);
    if (trial->gradients.has_reference) gradients_verdict_print(&verdict->backward, numbers);
  }
  printf("problem  %s\nresult   %s\n", problem, numbers);
}
