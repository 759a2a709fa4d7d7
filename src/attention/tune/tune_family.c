#include "attention/tune/tune_family.h"

#include <string.h>

#include "attention/flash/flash_fields.h"
#include "attention/flash/flash_request.h"
#include "attention/flash/flash_rules.h"
#include "attention/flash/flash_traits.h"
#include "attention/flash/short_form.h"
#include "attention/sm90/sm90_arguments.h"
#include "attention/sm90/sm90_choose.h"
#include "attention/sm90/sm90_fields.h"
#include "attention/sm90/sm90_request.h"
#include "attention/sm90/sm90_rules.h"
#include "attention/sm90/sm90_text.h"

/* ---- attention_sm90 ---- */

static kjit_status sm90_parse(const char *text, union tune_config *config, kjit_error *error) {
  return sm90_text_parse(text, &config->sm90, error);
}

static void sm90_print(const union tune_config *config, struct text *out) {
  sm90_text_print(&config->sm90, out);
}

static kjit_status sm90_check(const union tune_config *config, kjit_error *error) {
  return sm90_rules_check(&config->sm90, error);
}

static kjit_status sm90_check_place(const union tune_config *config, const struct attention_place *place,
                                    kjit_error *error) {
  (void)config; /* its shared memory is among the rules */
  return sm90_rules_check_arch(place->arch, error);
}

static void sm90_canonicalize(union tune_config *config) {
  config->sm90 = kjit_attention_sm90_config_canonical(&config->sm90);
}

static kjit_status sm90_match(const kjit_attention_problem *problem, const union tune_config *config,
                              kjit_error *error) {
  const kjit_status status = sm90_arguments_match(problem, &config->sm90, error);
  return status == KJIT_OK ? sm90_check_problem(problem, error) : status;
}

/* Between never leaving the output unscaled and leaving it as long as fp16 can bear, no slack is worth a compile. */
static const struct tune_hint sm90_hints[] = {{"rescale_slack", {0, 15}, 2}, {NULL, {0}, 0}};

static const struct tune_family sm90_family = {ATTENTION_SM90, &sm90_fields,        sm90_hints,       sm90_parse,
                                               sm90_print,     sm90_check,          sm90_check_place, sm90_canonicalize,
                                               sm90_match,     sm90_request_sources};

/* ---- flash_forward ---- */

static kjit_status flash_parse(const char *text, union tune_config *config, kjit_error *error) {
  return short_form_parse(&flash_fields, text, &config->flash, error);
}

static void flash_print(const union tune_config *config, struct text *out) {
  short_form_print(&flash_fields, &config->flash, 1, NULL, out);
}

static kjit_status flash_check(const union tune_config *config, kjit_error *error) {
  return flash_rules_check(&config->flash, error);
}

static kjit_status flash_check_place(const union tune_config *config, const struct attention_place *place,
                                     kjit_error *error) {
  return flash_rules_check_place(&config->flash, place->arch, place->shared_per_block, error);
}

static void flash_canonicalize(union tune_config *config) {
  config->flash = kjit_flash_config_canonical(&config->flash);
}

static kjit_status flash_match(const kjit_attention_problem *problem, const union tune_config *config,
                               kjit_error *error) {
  const kjit_flash_variant variant = {config->flash, flash_traits_of(problem)};
  return flash_rules_check_variant(&variant, error); /* its dtype and d_head are the class's */
}

/* Without these two a kernel is the seeds' first step: bank conflicts and a slower softmax, on every card. */
static const struct tune_hint flash_hints[] = {{"swizzled", {0}, 0}, {"optimized_softmax", {0}, 0}, {NULL, {0}, 0}};

static const struct tune_family flash_family = {
    ATTENTION_FLASH_FORWARD, &flash_fields,      flash_hints, flash_parse,          flash_print, flash_check,
    flash_check_place,       flash_canonicalize, flash_match, flash_request_sources};

/* ---- Both ---- */

const struct tune_family *const tune_families[TUNE_FAMILY_COUNT] = {
    [ATTENTION_SM90] = &sm90_family, [ATTENTION_FLASH_FORWARD] = &flash_family};

const struct tune_family *tune_family_find(const char *name, size_t bytes) {
  for (size_t i = 0; i < TUNE_FAMILY_COUNT; i++) {
    const char *known = tune_families[i]->fields->family;
    if (strlen(known) == bytes && !memcmp(known, name, bytes)) return tune_families[i];
  }
  return NULL;
}

/* The larger head size in whole 16s, at least 32: flash_forward computes in these. */
static int32_t whole_head(const struct tune_class *class) {
  const int32_t larger = class->head_dim > class->head_dim_v ? class->head_dim : class->head_dim_v;
  const int32_t whole = larger > INT32_MAX - 15 ? larger : (larger + 15) / 16 * 16;
  return whole < 32 ? 32 : whole;
}

_Bool tune_family_given(const struct field *field, const struct tune_class *class, int32_t *value) {
  const struct {
    const char *name;
    int32_t value;
  } given[] = {{"dtype", class->dtype},
               {"causal", class->causal},
               {"head_dim", class->head_dim},
               {"head_dim_v", class->head_dim_v},
               {"d_head", whole_head(class)}};
  for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
    if (strcmp(given[i].name, field->name) != 0) continue;
    *value = given[i].value;
    return 1;
  }
  return 0;
}

void tune_family_get(const struct attention_choice *choice, union tune_config *config) {
  *config = (union tune_config){0};
  if (choice->family == ATTENTION_SM90)
    config->sm90 = choice->sm90;
  else
    config->flash = choice->flash;
}

void tune_family_put(const struct tune_family *family, const union tune_config *config,
                     struct attention_choice *choice) {
  choice->family = family->id;
  if (family->id == ATTENTION_SM90)
    choice->sm90 = config->sm90;
  else
    choice->flash = config->flash;
}
