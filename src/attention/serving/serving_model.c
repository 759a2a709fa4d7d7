/* The kernels that serving a model may need, so that they can be built before a server starts: those that the rules
 * choose for every number of packed rows, with and without what a simple call leaves out, the plan pass of each, and
 * the append pass.
 *
 * Threads: pure; any. */
#include <string.h>

#include <kjit/attention_serving.h>

#include "attention/serving/serving_family.h"
#include "base/error.h"
#include "base/struct_intake.h"
#include "family/config.h"

/* Up to so many packed rows the rules choose by how many there are. */
#define MOST_FEW_ROWS 128
#define MOST_BATCH    256 /* the same of sequences */
#define MAX_ROWS      ((int64_t)1 << 30)
/* Rows of all sequences that keep any card busy. */
#define LARGE_CALL ((int64_t)1 << 16)

static kjit_status take_model(kjit_serving_model *known, const kjit_serving_model *model, kjit_error *error) {
  const kjit_status status = struct_intake(known, sizeof *known, model, sizeof *known, "model", error);
  if (status != KJIT_OK) return status;
  if (known->dtype != KJIT_FP16 && known->dtype != KJIT_BF16)
    return error_invalid(error, "model.dtype", "must be FP16 (5) or BF16 (15)");
  if (known->cache == 0) known->cache = known->dtype;
  if (known->cache != known->dtype && known->cache != KJIT_FP8_E4M3)
    return error_invalid(error, "model.cache", "must be model.dtype, or FP8_E4M3 (24)");
  if (known->heads_q < 1 || known->heads_q > INT32_MAX)
    return error_invalid(error, "model.heads_q", "must be from 1 to 2147483647");
  if (known->heads_kv == 0) known->heads_kv = known->heads_q;
  if (known->heads_kv < 0 || known->heads_q % known->heads_kv != 0)
    return error_invalid(error, "model.heads_kv", "must divide heads_q");
  if (known->head_dim_v == 0) known->head_dim_v = known->head_dim;
  if (known->page_size < 0) return error_invalid(error, "model.page_size", "must not be negative");
  if (known->softcap != 0 && known->softcap != 1) return error_invalid(error, "model.softcap", "must be 0 or 1");
  return KJIT_OK;
}

/* Does a device take the kernel by this name of its architecture? Those that need the features of one architecture are
 * compiled for as "sm_90a", all others as "sm_90" (family/config_kernel.c). */
static bool is_for(const struct serving_choice *choice, const char *arch) {
  const kjit_family *family = choice->family->family;
  const bool is_specific = family->is_arch_specific && family->is_arch_specific(family, choice->values);
  return is_specific == (arch[strlen(arch) - 1] == 'a');
}

static kjit_status add_kernel(const struct serving_problem *problem, kjit_serving_pass pass,
                              const struct family_place *place, kjit_config *configs, size_t *count,
                              kjit_error *error) {
  struct serving_choice choice;
  const kjit_status status = serving_choose(problem, pass, place, &choice, error);
  if (status != KJIT_OK || !is_for(&choice, place->arch)) return status;
  kjit_config config = {.family = choice.family->family};
  memcpy(config.values, choice.values, config.family->table.config_bytes);
  for (size_t i = 0; i < *count; i++)
    if (kjit_config_compare(&configs[i], &config) == 0) return KJIT_OK;
  if (*count == KJIT_SERVING_KERNELS_MAX) /* serving_arguments_test.c holds models of all kinds to it */
    return error_set(error, KJIT_ERR_INTERNAL, "a model needs more than %d kernels", KJIT_SERVING_KERNELS_MAX);
  configs[(*count)++] = config;
  return KJIT_OK;
}

/* The attend pass of calls that append no keys, and of those that append some. */
static kjit_status add_with_and_without_new_keys(struct serving_problem *problem, const struct family_place *place,
                                                 kjit_config *configs, size_t *count, kjit_error *error) {
  problem->meets_new_keys = false;
  kjit_status status = add_kernel(problem, KJIT_SERVING_ATTEND, place, configs, count, error);
  if (status != KJIT_OK) return status;
  problem->meets_new_keys = true;
  status = add_kernel(problem, KJIT_SERVING_ATTEND, place, configs, count, error);
  problem->meets_new_keys = false;
  return status;
}

/* The attend pass for up to `rows` rows of a sequence and `all` of all sequences, and its plan pass. */
static kjit_status add_attend(struct serving_problem *problem, int64_t rows, int64_t all,
                              const struct family_place *place, kjit_config *configs, size_t *count,
                              kjit_error *error) {
  problem->packed_rows = rows * problem->group;
  problem->rows = all;
  kjit_status status = KJIT_OK;
  for (int i = 0; i < 2 && status == KJIT_OK; i++) {
    problem->is_simple = i == 0;
    status = add_with_and_without_new_keys(problem, place, configs, count, error);
  }
  return status == KJIT_OK ? add_kernel(problem, KJIT_SERVING_PLAN, place, configs, count, error) : status;
}

/* The attend pass of simple calls with so many rows of each sequence, for batches of all sizes for which the rules may
 * have a kernel of its own. */
static kjit_status add_batches(struct serving_problem *problem, int64_t rows, const struct family_place *place,
                               kjit_config *configs, size_t *count, kjit_error *error) {
  kjit_status status = KJIT_OK;
  problem->is_simple = true;
  problem->packed_rows = rows * problem->group;
  for (problem->batch = 2; problem->batch <= MOST_BATCH && status == KJIT_OK; problem->batch *= 2) {
    problem->rows = problem->batch * rows;
    status = add_with_and_without_new_keys(problem, place, configs, count, error);
  }
  problem->batch = 1;
  return status;
}

kjit_status kjit_attention_serving_kernels(const kjit_serving_model *model, const char *arch, kjit_config *configs,
                                           size_t *count, kjit_error *error) {
  kjit_serving_model known;
  struct family_place place;
  error_clear(error);
  if (!configs) return error_invalid(error, "configs", "must not be NULL");
  if (!count) return error_invalid(error, "count", "must not be NULL");
  *count = 0;
  if (!arch) return error_invalid(error, "arch", "must not be NULL");
  kjit_status status = take_model(&known, model, error);
  if (status == KJIT_OK) status = family_place_of_arch(arch, &place, error);
  struct serving_problem problem = {.dtype = known.dtype,
                                    .head_dim = known.head_dim,
                                    .head_dim_v = known.head_dim_v,
                                    .heads_kv = known.heads_kv,
                                    .group = 1,
                                    .batch = 1,
                                    .page_size = known.page_size,
                                    .softcap = known.softcap != 0,
                                    .is_narrow = known.cache == KJIT_FP8_E4M3,
                                    .is_plain = true,
                                    .is_banded = true};
  if (status == KJIT_OK) problem.group = known.heads_q / known.heads_kv;
  /* Every number of packed rows for which the rules may have a tile of its own, and many, in small and large calls. */
  for (int64_t rows = 1; rows * problem.group <= MOST_FEW_ROWS && status == KJIT_OK; rows++) {
    status = add_attend(&problem, rows, 1, &place, configs, count, error);
    if (status == KJIT_OK) status = add_batches(&problem, rows, &place, configs, count, error);
  }
  if (status == KJIT_OK) status = add_attend(&problem, MAX_ROWS, 1, &place, configs, count, error);
  if (status == KJIT_OK) status = add_attend(&problem, MAX_ROWS, LARGE_CALL, &place, configs, count, error);
  problem.is_mixed = known.page_size == 0; /* pages are read by one kernel, mixed or not */
  if (status == KJIT_OK && problem.is_mixed)
    status = add_attend(&problem, MAX_ROWS, LARGE_CALL, &place, configs, count, error);
  if (status == KJIT_OK) status = add_kernel(&problem, KJIT_SERVING_APPEND, &place, configs, count, error);
  if (status != KJIT_OK) *count = 0;
  return status;
}
