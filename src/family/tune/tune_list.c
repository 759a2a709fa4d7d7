/* A list of candidates as the public API shows it.
 *
 * 1. tune_list_create() makes the candidates by rules.
 * 2. kjit_tune_candidates_judge() builds them and reads the compiler's report: what did not compile, spills more than
 *    the rules' choice, does not fit an SM, or leaves its schedulers idle is refused.
 *
 * Threads: a list belongs to one thread. */
#include "family/tune/tune_list.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "family/config.h"

/* Warps and schedulers of an SM: the same for every architecture so far (CUDA C++ Programming Guide, "Technical
 * Specifications per Compute Capability"). */
enum { WARP = 32, SCHEDULERS = 4 };

struct kjit_tune_candidates {
  const struct mem *mem;
  struct tune_candidates made;
  kjit_tune_candidate *shown; /* made.count */
  char arch[16];
  bool knows_sm; /* this version knows the limits of the architecture's SMs */
};

static kjit_status show(kjit_tune_candidates *list, kjit_error *error) {
  const struct tune_candidates *made = &list->made;
  list->shown = mem_alloc_array(list->mem, made->count, sizeof *list->shown);
  if (!list->shown) return error_no_memory(error);
  for (size_t i = 0; i < made->count; i++) {
    kjit_tune_candidate *shown = &list->shown[i];
    shown->config.family = made->family;
    memcpy(shown->config.values, made->items[i].values, sizeof made->items[i].values);
    shown->refused = made->items[i].refused;
    shown->changes = made->items[i].changes;
  }
  return KJIT_OK;
}

kjit_status tune_list_create(kjit_tune_candidates **out, const struct mem *mem, const struct tune_start *start,
                             const char *set, kjit_error *error) {
  kjit_tune_candidates *list = mem_alloc(mem, sizeof *list);
  *out = NULL;
  if (!list) return error_no_memory(error);
  list->mem = mem;
  list->knows_sm = start->place->shared_per_block > 0;
  snprintf(list->arch, sizeof list->arch, "%s", start->place->arch);
  kjit_status status = set ? tune_candidates_make_set(&list->made, mem, start, set, error)
                           : tune_candidates_make(&list->made, mem, start, error);
  if (status == KJIT_OK) status = show(list, error);
  if (status == KJIT_OK)
    *out = list;
  else
    kjit_tune_candidates_destroy(list);
  return status;
}

const kjit_tune_candidate *kjit_tune_candidates_get(const kjit_tune_candidates *list, size_t index) {
  return list && index < list->made.count ? &list->shown[index] : NULL;
}

void kjit_tune_candidates_destroy(kjit_tune_candidates *list) {
  if (!list) return;
  const struct mem *mem = list->mem;
  tune_candidates_finish(&list->made);
  mem_free(mem, list->shown);
  mem_free(mem, list);
}

/* ---- The compiler's report ---- */

static kjit_status read_report(const kjit_tune_candidates *list, kjit_tune_candidate *candidate, kjit_runtime *runtime,
                               kjit_error *error) {
  kjit_artifact *artifact = NULL;
  kjit_artifact_info info = {.struct_size = sizeof info};
  kjit_status status = kjit_config_build(runtime, &candidate->config, list->arch, 0, &artifact, error);
  if (status == KJIT_OK) status = kjit_artifact_get_info(artifact, &info, error);
  candidate->registers = info.registers;
  candidate->spill_bytes = info.spill_bytes;
  candidate->blocks_per_sm = kjit_config_blocks_per_sm(&candidate->config, info.registers, list->arch);
  kjit_artifact_release(artifact);
  return status;
}

static uint32_t count_warps(const kjit_tune_candidate *candidate) {
  const kjit_geometry geometry = config_geometry(candidate->config.family, candidate->config.values);
  return (geometry.threads[0] * geometry.threads[1] * geometry.threads[2] + WARP - 1) / WARP;
}

static void refuse(const kjit_tune_candidates *list, const kjit_tune_candidate *candidate, char *why) {
  const kjit_tune_candidate *const rules = &list->shown[0];
  const uint32_t warps = count_warps(candidate);
  if (candidate->spill_bytes > rules->spill_bytes)
    snprintf(why, TUNE_REASON_MAX, "spills %u bytes a thread", candidate->spill_bytes);
  else if (!list->knows_sm || !candidate->registers || !rules->registers)
    return; /* what fits an SM is not known */
  else if (candidate->blocks_per_sm == 0)
    snprintf(why, TUNE_REASON_MAX, "no multiprocessor can hold a block: %u registers, %u warps", candidate->registers,
             warps);
  else if (candidate->blocks_per_sm * warps < SCHEDULERS && rules->blocks_per_sm * count_warps(rules) >= SCHEDULERS)
    snprintf(why, TUNE_REASON_MAX, "%u warps on a multiprocessor leave schedulers idle",
             candidate->blocks_per_sm * warps);
}

kjit_status kjit_tune_candidates_judge(kjit_tune_candidates *list, kjit_runtime *runtime, size_t index,
                                       kjit_error *error) {
  kjit_error reason;
  kjit_error unread;
  if (!error) error = &unread;
  error_clear(error);
  error_clear(&reason);
  if (!list || index >= list->made.count) return error_invalid(error, "index", "must be one of the list, not NULL");
  if (!runtime) return error_invalid(error, "runtime", "must not be NULL");
  kjit_tune_candidate *const candidate = &list->shown[index];
  char *const why = list->made.items[index].refused;
  if (*why) return KJIT_OK;
  const kjit_status status = read_report(list, candidate, runtime, &reason);
  if (status != KJIT_OK && index == 0) return error_set(error, status, "%s", reason.message);
  if (status != KJIT_OK)
    snprintf(why, TUNE_REASON_MAX, "%.255s", reason.message);
  else if (index > 0)
    refuse(list, candidate, why);
  return KJIT_OK;
}
