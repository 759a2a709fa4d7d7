#include "tune_field.h"

#include "command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of every architecture so far: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". */
enum { REGISTERS = 65536, REGISTER_STEP = 256, WARP = 32, SCHEDULERS = 4, RESERVED_SHARED = 1024 };

static kjit_status choice_of(const kjit_tune_candidate *candidate, const kjit_attention_problem *problem,
                             const char *arch, struct kernel_choice *out, kjit_error *error) {
  kjit_attention_sm90_config sm90;
  kjit_flash_config flash;
  kjit_flash_variant variant;
  if (strcmp(candidate->family, "attention_sm90") == 0) {
    const kjit_status status = kjit_attention_sm90_config_parse(candidate->config, &sm90, error);
    return status == KJIT_OK ? kernel_choice_of_sm90(&sm90, arch, out, error) : status;
  }
  kjit_status status = kjit_flash_config_parse(candidate->config, &flash, error);
  if (status == KJIT_OK) status = kjit_flash_variant_of(&flash, problem, &variant, error);
  return status == KJIT_OK ? kernel_choice_of_flash(&variant, arch, out, error) : status;
}

static size_t count_list(const kjit_tune_candidates *list) {
  size_t count = 0;
  while (kjit_tune_candidates_get(list, count) != NULL)
    count++;
  return count;
}

static kjit_status take_list(struct field_of_entrants *field, const char *arch, size_t most, kjit_error *error) {
  const kjit_attention_problem asked = attention_spec_problem(&field->problem->spec);
  const size_t count = count_list(field->list);
  kjit_status status = KJIT_OK;
  field->items = calloc(count + 1, sizeof *field->items);
  if (field->items == NULL) return error_say(error, KJIT_ERR_NO_MEMORY, "out of memory for %zu candidates", count);
  for (size_t i = 0; i < count && status == KJIT_OK; i++) {
    const kjit_tune_candidate *candidate = kjit_tune_candidates_get(field->list, i);
    field->family = candidate->family;
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
    status = choice_of(candidate, &asked, arch, &entrant->choice, error);
  }
  return status;
}

kjit_status field_make(struct field_of_entrants *field, kjit_runtime *runtime, const struct tune_card *card,
                       const struct tune_problem *problem, size_t most, kjit_error *error) {
  const kjit_attention_problem asked = attention_spec_problem(&problem->spec);
  const kjit_device_info *device = card->device.name[0] != '\0' ? &card->device : NULL;
  *field = (struct field_of_entrants){.problem = problem};
  const kjit_status status = kjit_tune_candidates_create(runtime, &asked, device, card->arch, &field->list, error);
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
    status = request_list_add(list, &field->items[i].choice, card->arch, error);
  return status;
}

/* ---- The compiler's report ---- */

static const struct warm_result *result_of(const struct request_list *list, const struct warm_result *results,
                                           const struct kernel_choice *choice) {
  size_t low = 0, high = list->count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const int order = kernel_choice_compare(&list->items[middle].choice, choice);
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

/* Blocks that a multiprocessor holds at once, by registers, shared memory and threads. */
static uint32_t count_blocks(const struct entrant *entrant, uint32_t static_shared, const kjit_device_info *device) {
  const uint32_t threads = kernel_choice_threads(&entrant->choice);
  const uint32_t shared = kernel_choice_shared_bytes(&entrant->choice) + static_shared + RESERVED_SHARED;
  const uint32_t per_warp = (entrant->registers * WARP + REGISTER_STEP - 1) / REGISTER_STEP * REGISTER_STEP;
  const uint32_t by_registers = per_warp > 0 ? REGISTERS / per_warp / (threads / WARP) : UINT32_MAX;
  const uint32_t whole = device->max_shared_per_multiprocessor;
  return whole > 0 ? least(by_registers, whole / shared) : by_registers;
}

static kjit_status read_report(struct entrant *entrant, kjit_runtime *runtime, const struct tune_card *card,
                               kjit_error *error) {
  kjit_artifact *artifact = NULL;
  kjit_artifact_info info = {.struct_size = sizeof info};
  kjit_status status = kernel_choice_build(runtime, &entrant->choice, card->arch, &artifact, error);
  if (status == KJIT_OK) status = kjit_artifact_get_info(artifact, &info, error);
  entrant->registers = info.registers;
  entrant->spill_bytes = info.spill_bytes;
  entrant->blocks = count_blocks(entrant, info.shared_bytes, &card->device);
  kjit_artifact_release(artifact);
  return status;
}

static void refuse(struct entrant *entrant, const struct entrant *rules) {
  const uint32_t warps = kernel_choice_threads(&entrant->choice) / WARP;
  if (entrant->spill_bytes > rules->spill_bytes)
    snprintf(entrant->refused, sizeof entrant->refused, "spills %u bytes a thread", entrant->spill_bytes);
  else if (entrant->blocks == 0)
    snprintf(entrant->refused, sizeof entrant->refused, "no multiprocessor can hold a block: %u registers, %u warps",
             entrant->registers, warps);
  else if (entrant->blocks * warps < SCHEDULERS &&
           rules->blocks * kernel_choice_threads(&rules->choice) / WARP >= SCHEDULERS)
    snprintf(entrant->refused, sizeof entrant->refused, "%u warps on a multiprocessor leave schedulers idle",
             entrant->blocks * warps);
}

kjit_status field_judge(struct field_of_entrants *field, kjit_runtime *runtime, const struct tune_card *card,
                        const struct request_list *list, const struct warm_result *results, kjit_error *error) {
  for (size_t i = 0; i < field->count; i++) {
    struct entrant *entrant = &field->items[i];
    const struct warm_result *result = result_of(list, results, &entrant->choice);
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
