/* attention_backward_sm90's planner: the largest step that fits registers and shared memory, pipelined where it may be.
 * docs/backward.md has the rules. Pure; any thread. */
#include <string.h>

#include "attention/backward/sm90_backward.h"
#include "base/error.h"
#include "flash_backward/params.h"

/* Steps from the largest to the smallest. */
static const int32_t steps[] = {128, 96, 80, 64, 48, 32, 16};

/* Numbers of stages from the most wanted to the least: two of each, so that a tile is loaded while another is used. */
static const struct { int32_t wide, value; } stages[] = {{2, 2}, {2, 1}, {1, 1}};

enum { STEPS = sizeof steps / sizeof *steps, STAGES = sizeof stages / sizeof *stages };

/* Take the first combination of stages with which the config fits. */
static bool find_stages(kjit_attention_backward_sm90_config *config) {
  for (size_t i = 0; i < STAGES; i++) {
    const bool keeps_value = config->pipelined && config->pass & FLASH_BACKWARD_DV;
    if (config->pipelined && (stages[i].wide < 2 || (keeps_value && stages[i].value < 2))) continue;
    config->stages = stages[i].wide;
    config->value_stages = stages[i].value;
    if (sm90_backward_fits(config)) return true;
  }
  return false;
}

/* Take the largest step of at least `least` rows with which the config fits. */
static bool find_step(kjit_attention_backward_sm90_config *config, int32_t most, int32_t least) {
  for (size_t i = 0; i < STEPS && steps[i] >= least; i++) {
    config->tile = steps[i];
    if (steps[i] <= most && find_stages(config)) return true;
  }
  return false;
}

/* dq is pipelined. dk and dv are summed by one kernel where steps of 32 rows fit, pipelined with steps of 64. */
static bool find_tile(kjit_attention_backward_sm90_config *config) {
  config->pipelined = 1;
  if (!sm90_backward_owns_keys(config)) return find_step(config, 128, 16);
  if (find_step(config, 64, 64)) return true;
  config->pipelined = 0;
  if (config->pass == (FLASH_BACKWARD_DK | FLASH_BACKWARD_DV)) return find_step(config, 64, 32);
  return find_step(config, 64, 16);
}

static kjit_status check_head_size(const char *name, int64_t columns, kjit_error *error) {
  if (columns >= 8 && columns % 8 == 0 && columns <= 256) return KJIT_OK;
  return error_set(error, KJIT_ERR_UNSUPPORTED, "%s is %lld: attention_backward_sm90 takes multiples of 8 up to 256",
                   name, (long long)columns);
}

kjit_status sm90_backward_choose(const kjit_attention_problem *problem, uint32_t wanted,
                                 const struct family_place *place, int32_t *values, kjit_error *error) {
  const uint32_t keys = wanted & (KJIT_GRADIENT_K | KJIT_GRADIENT_V);
  kjit_status status = check_head_size("head_dim", problem->head_dim, error);
  (void)place; /* the planner asks this family for its own architecture only */
  if (status == KJIT_OK) status = check_head_size("head_dim_v", problem->head_dim_v, error);
  if (status != KJIT_OK) return status;
  if (wanted & BACKWARD_DELTA)
    return error_set(error, KJIT_ERR_UNSUPPORTED, "delta alone: attention_backward_sm90 has no kernel for it");
  const int64_t own_rows = wanted & KJIT_GRADIENT_Q ? problem->seq_q : problem->seq_kv;
  kjit_attention_backward_sm90_config config = {.dtype = problem->dtype,
                                                .head_dim = (int32_t)problem->head_dim,
                                                .head_dim_v = (int32_t)problem->head_dim_v,
                                                .causal = problem->flags & KJIT_ATTENTION_CAUSAL ? 1 : 0,
                                                .pass = wanted & KJIT_GRADIENT_Q ? FLASH_BACKWARD_DQ : (int32_t)keys,
                                                .consumers = own_rows <= 64 ? 1 : 2};
  bool found = find_tile(&config);
  if (!found && config.pass == (FLASH_BACKWARD_DK | FLASH_BACKWARD_DV)) {
    config.pass = FLASH_BACKWARD_DK; /* dv is chosen next */
    found = find_tile(&config);
  }
  if (!found) return error_set(error, KJIT_ERR_UNSUPPORTED, "no config of attention_backward_sm90 fits");
  memcpy(values, &config, sizeof config);
  return KJIT_OK;
}
