/* The candidates of one problem (the "field" of entrants of tune_contest.h), from the library's list to those worth
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

/* Limits of an SM that hold for every architecture so far (CUDA C++ Programming Guide, "Technical Specifications per
 * Compute Capability"). */
enum { REGISTERS = 65536, REGISTER_STEP = 256, WARP = 32, SCHEDULERS = 4, RESERVED_SHARED = 1024 };

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
    status = request_check(&entrant->config, arch, error);
  }
  return status;
}

kjit_status field_make(struct field_of_entrants *field, kjit_runtime *runtime, const struct tune_card *card,
                       const struct tune_problem *problem, size_t most, kjit_error *error) {
  const kjit_device_info *device = card->device.name[0] != '\0' ? &card->device : NULL;
  *field = (struct field_of_entrants){.problem = problem};
  const kjit_status status =
      kjit_tune_candidates_create(&field->list, runtime, &problem->asked, device, card->arch, error);
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

static uint32_t least(uint32_t a, uint32_t b) {
  return a < b ? a : b;
}

/* How many blocks an SM holds at once, by registers, shared memory and threads. */
static uint32_t count_blocks(const struct entrant *entrant, uint32_t static_shared, const kjit_device_info *device) {
  const uint32_t threads = kjit_config_geometry(&entrant->config).threads[0];
  const uint32_t shared = kjit_config_geometry(&entrant->config).shared_bytes + static_shared + RESERVED_SHARED;
  const uint32_t per_warp = (entrant->registers * WARP + REGISTER_STEP - 1) / REGISTER_STEP * REGISTER_STEP;
  const uint32_t by_registers = per_warp > 0 ? REGISTERS / per_warp / (threads / WARP) : UINT32_MAX;
  const uint32_t whole = device->max_shared_per_multiprocessor;
  return whole > 0 ? least(by_registers, whole / shared) : by_registers;
}

static kjit_status read_report(struct entrant *entrant, kjit_runtime *runtime, const struct tune_card *card,
                               kjit_error *error) {
  kjit_artifact *artifact = NULL;
  kjit_artifact_info info = {.struct_size = sizeof info};
  kjit_status status = kjit_config_build(runtime, &entrant->config, card->arch, 0, &artifact, error);
  if (status == KJIT_OK) status = kjit_artifact_get_info(artifact, &info, error);
  entrant->registers = info.registers;
  entrant->spill_bytes = info.spill_bytes;
  entrant->blocks = count_blocks(entrant, info.shared_bytes, &card->device);
  kjit_artifact_release(artifact);
  return status;
}

static void refuse(struct entrant *entrant, const struct entrant *rules) {
  const uint32_t warps = kjit_config_geometry(&entrant->config).threads[0] / WARP;
  if (entrant->spill_bytes > rules->spill_bytes)
    snprintf(entrant->refused, sizeof entrant->refused, "spills %u bytes a thread", entrant->spill_bytes);
  else if (entrant->blocks == 0)
    snprintf(entrant->refused, sizeof entrant->refused, "no multiprocessor can hold a block: %u registers, %u warps",
             entrant->registers, warps);
  else if (entrant->blocks * warps < SCHEDULERS &&
           rules->blocks * kjit_config_geometry(&rules->config).threads[0] / WARP >= SCHEDULERS)
    snprintf(entrant->refused, sizeof entrant->refused, "%u warps on a multiprocessor leave schedulers idle",
             entrant->blocks * warps);
}

kjit_status field_judge(struct field_of_entrants *field, kjit_runtime *runtime, const struct tune_card *card,
                        const struct request_list *list, const struct warm_result *results, kjit_error *error) {
  for (size_t i = 0; i < field->count; i++) {
    struct entrant *entrant = &field->items[i];
    const struct warm_result *result = result_of(list, results, &entrant->config);
    kjit_error reason = {0};
    if (result != NULL && result->status != KJIT_OK)
      error_say(&reason, (kjit_status)result->status, "%s", result->message);
    if (reason.status == KJIT_OK) (void)!read_report(entrant, runtime, card, &reason);
    if (reason.status != KJIT_OK && i == 0) {
      *error = reason;
      return (kjit_status)error->status;
    }
    if (reason.status != KJIT_OK)
      snprintf(entrant->refused, sizeof entrant->refused, "%.255s", reason.message);
    else if (i > 0)
      refuse(entrant, &field->items[0]);
  }
  return KJIT_OK;
}
