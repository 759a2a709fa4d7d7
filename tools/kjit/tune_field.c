/* The candidates of one problem (the "field" of entrants of kjit_contest_run()), from the library's list to those worth
 * running.
 *
 * 1. field_make() asks the library for candidates and takes the nearest; those that break a rule are counted.
 * 2. field_add_requests() puts them into the list that is compiled for all problems together.
 * 3. field_judge() reads the compiler's report on each: what did not compile, spills more than the rules' choice, does
 *    not fit an SM or leaves its schedulers idle, does not run.
 *
 * One thread. */
#include "tune_field.h"

#include "command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t count_list(const kjit_tune_candidates *list) {
  size_t count = 0;
  while (kjit_tune_candidates_get(list, count) != NULL)
    count++;
  return count;
}

static kjit_status take_list(struct field_of_entrants *field, const char *arch, size_t most, kjit_error *error) {
  const size_t count = count_list(field->list);
  kjit_status status = KJIT_OK;
  field->items = calloc(count + 1, sizeof *field->items);
  if (field->items == NULL) return error_say(error, KJIT_ERR_NO_MEMORY, "out of memory for %zu candidates", count);
  for (size_t i = 0; i < count && status == KJIT_OK; i++) {
    const kjit_tune_candidate *candidate = kjit_tune_candidates_get(field->list, i);
    if (candidate->refused[0] != '\0') {
      field->refused++;
      continue;
    }
    if (field->count == most) {
      field->left_out++;
      continue;
    }
    struct entrant *entrant = &field->items[field->count++];
    entrant->config = candidate->config;
    entrant->changes = candidate->changes;
    entrant->index = i;
    status = request_check(&entrant->config, arch, error);
  }
  return status;
}

kjit_status field_make(struct field_of_entrants *field, kjit_runtime *runtime, const struct tune_card *card,
                       const struct tune_problem *problem, const char *set, size_t most, kjit_error *error) {
  const kjit_device_info *device = card->device.name[0] != '\0' ? &card->device : NULL;
  *field = (struct field_of_entrants){.problem = problem};
  const kjit_status status =
      kjit_tune_candidates_create(&field->list, runtime, &problem->asked, set, device, card->arch, error);
  return status == KJIT_OK ? take_list(field, card->arch, most, error) : status;
}

void field_finish(struct field_of_entrants *field) {
  free(field->items);
  kjit_tune_candidates_destroy(field->list);
  *field = (struct field_of_entrants){0};
}

kjit_status field_add_requests(const struct field_of_entrants *field, const struct tune_card *card,
                               struct request_list *list, kjit_error *error) {
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < field->count && status == KJIT_OK; i++)
    status = request_list_add(list, &field->items[i].config, card->arch, error);
  return status;
}

/* ---- The compiler's report ---- */

static const struct warm_result *result_of(const struct request_list *list, const struct warm_result *results,
                                           const kjit_config *config) {
  size_t low = 0, high = list->count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const int order = kjit_config_compare(&list->items[middle].config, config);
    if (order == 0) return &results[middle];
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return NULL;
}

/* Read the report on an entrant that compiled. The library refuses it by that, or says what went wrong. */
static kjit_status read_report(struct field_of_entrants *field, struct entrant *entrant, kjit_runtime *runtime,
                               kjit_error *error) {
  const kjit_status status = kjit_tune_candidates_judge(field->list, runtime, entrant->index, error);
  const kjit_tune_candidate *candidate = kjit_tune_candidates_get(field->list, entrant->index);
  entrant->registers = candidate->registers;
  entrant->spill_bytes = candidate->spill_bytes;
  snprintf(entrant->refused, sizeof entrant->refused, "%.255s", candidate->refused);
  return status;
}

kjit_status field_judge(struct field_of_entrants *field, kjit_runtime *runtime, const struct request_list *list,
                        const struct warm_result *results, kjit_error *error) {
  for (size_t i = 0; i < field->count; i++) {
    struct entrant *entrant = &field->items[i];
    const struct warm_result *result = result_of(list, results, &entrant->config);
    kjit_error reason = {0};
    if (result != NULL && result->status != KJIT_OK)
      error_say(&reason, (kjit_status)result->status, "%s", result->message);
    if (reason.status == KJIT_OK) (void)!read_report(field, entrant, runtime, &reason);
    if (reason.status != KJIT_OK && i == 0) {
      *error = reason;
      return (kjit_status)error->status;
    }
    if (reason.status != KJIT_OK) snprintf(entrant->refused, sizeof entrant->refused, "%.255s", reason.message);
  }
  return KJIT_OK;
}
