/* Choosing for users' families, and where tuning starts for them: each is a subject of tuned tables
 * (definition_tune.c), and this file brings problems, places and tables together.
 *
 * Threads: everything belongs to the call, except the runtime's tables, which tune_store.h guards. */
#include "family/tune/family_tune.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/struct_intake.h"
#include "family/config.h"
#include "family/definition/family_problem.h"
#include "family/tune/tune_device.h"
#include "family/tune/tune_store.h"
#include "runtime/runtime_internal.h"

/* A config is fitted to a problem by the values that the problem gives. */
static kjit_status fit(const void *user, int32_t *values, kjit_error *error) {
  const kjit_family_problem *const problem = user;
  const struct family_definition *const definition = problem->given.family->definition;
  (void)error;
  for (size_t i = 0; i < definition->field_count; i++)
    if (definition->given >> i & 1) values[i] = problem->given.values[i];
  return KJIT_OK;
}

/* Check the problem, name its class and its place. Nothing is looked up yet, so that a wrong problem is refused whether
 * there is a table or not. */
static kjit_status ask(struct family_asked *asked, const kjit_family_problem *problem, const kjit_device_info *device,
                       const char *arch, kjit_error *error) {
  memset(asked, 0, sizeof *asked);
  kjit_status status = family_problem_take(problem, error);
  if (status == KJIT_OK) status = tune_device_take(device, arch, &asked->device, error);
  if (status != KJIT_OK) return status;
  asked->problem = problem;
  asked->definition = problem->given.family->definition;
  asked->place = family_place_of_device(&asked->device);
  return family_problem_classify(problem, asked->class, error);
}

/* What the family's own rules choose: legal there, and canonical. */
static kjit_status choose_by_rules(struct family_asked *asked, kjit_error *error) {
  const struct family_definition *const definition = asked->definition;
  (void)!fit(asked->problem, asked->values, NULL);
  kjit_status status =
      definition_choose_values(definition, asked->problem->parameters, &asked->place, asked->values, error);
  if (status == KJIT_OK) status = config_check(&definition->family, asked->values, &asked->place, error);
  if (status == KJIT_OK) config_canonicalize(&definition->family, asked->values);
  return status;
}

/* What the table has for the class, fitted to this problem; false: nothing that is legal. */
static bool choose_by_table(kjit_runtime *runtime, const struct family_asked *asked, int32_t *values) {
  const struct tune_subject *const subject = asked->definition->subject;
  const kjit_family *const family = &asked->definition->family;
  struct tune_table *const table = asked->device.ordinal == TUNE_NO_DEVICE
                                       ? tune_store_of_arch(runtime, subject, &asked->place)
                                       : tune_store_of_device(runtime, subject, &asked->device);
  const struct tune_row *const row = table ? tune_table_find(table, asked->class) : NULL;
  if (!row || row->rules) return false;
  memcpy(values, row->values, family->table.config_bytes);
  (void)!fit(asked->problem, values, NULL);
  if (config_check(family, values, &asked->place, NULL) == KJIT_OK) return true;
  tune_table_count_misfit(table);
  return false;
}

/* The table first, and the rules where it has no legal row. Without a runtime there is no table to ask. */
kjit_status kjit_family_choose(kjit_runtime *runtime, const kjit_family_problem *problem,
                               const kjit_device_info *device, const char *arch, kjit_config *config,
                               uint32_t *decided_by, kjit_error *error) {
  struct family_asked asked;
  error_clear(error);
  if (decided_by) *decided_by = KJIT_DECIDED_BY_NONE;
  if (!config) return error_invalid(error, "config", "must not be NULL");
  memset(config, 0, sizeof *config);
  kjit_status status = ask(&asked, problem, device, arch, error);
  if (status != KJIT_OK) return status;
  const bool found = runtime && choose_by_table(runtime, &asked, asked.values);
  if (!found) status = choose_by_rules(&asked, error);
  if (status != KJIT_OK) return status;
  config->family = &asked.definition->family;
  memcpy(config->values, asked.values, sizeof config->values);
  if (decided_by) *decided_by = found ? KJIT_DECIDED_BY_TABLE : KJIT_DECIDED_BY_RULES;
  return KJIT_OK;
}

kjit_status family_asked_init(struct family_asked *asked, const kjit_family_problem *problem,
                              const kjit_device_info *device, const char *arch, kjit_error *error) {
  const kjit_status status = ask(asked, problem, device, arch, error);
  return status == KJIT_OK ? choose_by_rules(asked, error) : status;
}

struct tune_start family_asked_start(const struct family_asked *asked) {
  return (struct tune_start){.subject = asked->definition->subject,
                             .family = &asked->definition->family,
                             .values = asked->values,
                             .class = asked->class,
                             .place = &asked->place,
                             .fit = fit,
                             .problem = asked->problem};
}

kjit_status kjit_tune_device_any(const char *arch, kjit_device_info *device, kjit_error *error) {
  kjit_device_info any;
  error_clear(error);
  if (!arch) return error_invalid(error, "arch", "must not be NULL");
  const kjit_status status = tune_device_take(NULL, arch, &any, error);
  return status == KJIT_OK ? struct_fill(device, &any, sizeof any, "device", error) : status;
}
