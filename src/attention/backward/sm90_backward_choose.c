/* attention_backward_sm90's planner: tiles in the order in which they were fastest on an H200, of which the first that
 * fits registers and shared memory is taken. docs/backward.md has the measurements. Pure; any thread. */
#include <string.h>

#include "attention/backward/sm90_backward.h"
#include "attention/rule.h"
#include "base/error.h"
#include "flash_backward/params.h"

/* One way to make the steps: rows of a step, stages, pipelined. A row of zeros ends a list. */
struct way {
  int32_t tile, stages, value_stages, pipelined;
};

/* Head sizes up to 64: the special function unit has as much to do as the tensor cores, and large tiles without
 * `pipelined` leave most registers to its results. Long sequences have a third consumer's rows to spare. */
static const struct way narrow_queries[] = {{128, 3, 3, 0}, {0}};
static const struct way long_narrow_queries[] = {{64, 4, 4, 1}, {0}};
static const struct way narrow_keys[] = {{112, 2, 2, 0}, {0}};

/* Of an attention variant a consumer thread has 8 registers less, and its functions need some. A score function runs
 * when no product is in flight, so that `pipelined` gives little, and large steps leave it more independent scores. */
static const struct way variant_narrow_keys[] = {{96, 2, 2, 0}, {0}};
static const struct way score_queries[] = {{96, 2, 2, 0}, {64, 2, 2, 0}, {48, 2, 2, 0},
                                           {48, 2, 1, 0}, {32, 2, 1, 0}, {0}};
static const struct way score_keys[] = {{64, 2, 2, 0}, {48, 2, 2, 0}, {32, 2, 2, 0}, {0}};
#define LONG_QUERIES 4096

/* Head sizes from there on. Pipelined, a step's tiles are given back a step late, so that three stages are needed for
 * one to be on its way; the value tile of dq, which no sum reads, is given back early. */
static const struct way queries[] = {{64, 3, 3, 1}, {64, 3, 2, 1}, {48, 2, 2, 0}, {48, 2, 1, 0}, {32, 2, 1, 0}, {0}};

/* dk and dv by one kernel, as long as both sums leave registers for steps of 32 rows. */
static const struct way both_keys[] = {{64, 3, 3, 1}, {48, 3, 3, 1}, {32, 3, 3, 1}, {32, 2, 2, 0}, {0}};

/* dk alone, dv alone. */
static const struct way keys[] = {{64, 3, 3, 1}, {64, 3, 2, 1}, {48, 3, 3, 1},
                                  {64, 2, 1, 0}, {48, 2, 1, 0}, {32, 2, 2, 0},
                                  {32, 1, 1, 0}, {16, 1, 1, 0}, {0}};
static const struct way key_values[] = {{64, 3, 3, 1}, {48, 3, 3, 1}, {32, 3, 3, 1}, {48, 2, 2, 0},
                                        {32, 2, 2, 0}, {32, 1, 1, 0}, {16, 1, 1, 0}, {0}};

/* Both where both head sizes are above 128: the consumers split dk and dv of the same 64 keys. Long sequences have
 * steps enough for a third stage to count. */
static const struct way split_keys[] = {{64, 3, 3, 1}, {64, 2, 2, 1}, {0}};
static const struct way long_split_keys[] = {{64, 3, 3, 1}, {48, 3, 3, 1}, {0}};
#define LONG_SPLIT_KEYS 4096

/* Take the first way with which the config fits. */
static bool take_way(kjit_attention_backward_sm90_config *config, const struct way *way) {
  for (; way->tile; way++) {
    config->tile = way->tile;
    config->stages = way->stages;
    config->value_stages = way->value_stages;
    config->pipelined = way->pipelined;
    if (sm90_backward_fits(config)) return true;
  }
  return false;
}

static bool find_tile(kjit_attention_backward_sm90_config *config, int64_t own_rows,
                      const struct backward_wanted *wanted) {
  const bool is_variant = wanted->is_variant, has_score = wanted->has_score;
  const bool narrow = config->head_dim <= 64 && config->head_dim_v <= 64;
  const bool splits = sm90_backward_splits(config);
  config->consumers = own_rows <= 64 && !splits ? 1 : 2;
  if (!sm90_backward_owns_keys(config)) {
    if (!narrow) return take_way(config, has_score ? score_queries : queries);
    if (own_rows < LONG_QUERIES) return take_way(config, narrow_queries);
    config->consumers = 3;
    return take_way(config, long_narrow_queries);
  }
  if (narrow) return take_way(config, is_variant ? variant_narrow_keys : narrow_keys);
  if (splits && is_variant) return false; /* its consumers do not know how */
  if (splits) return take_way(config, own_rows < LONG_SPLIT_KEYS ? split_keys : long_split_keys);
  if (config->pass == FLASH_BACKWARD_DV) return take_way(config, key_values);
  return take_way(config, config->pass == FLASH_BACKWARD_DK ? keys : has_score ? score_keys : both_keys);
}

kjit_status sm90_backward_choose(const struct backward_wanted *wanted, uint32_t left, const struct family_place *place,
                                 int32_t *values, kjit_error *error) {
  const kjit_attention_problem *problem = wanted->problem;
  const uint32_t keys_left = left & (KJIT_GRADIENT_K | KJIT_GRADIENT_V);
  const kjit_status status = rule_check_heads(problem, "attention_backward_sm90", error);
  (void)place; /* the planner asks this family for its own architecture only */
  if (status != KJIT_OK) return status;
  if (left & BACKWARD_DELTA || !(left & (KJIT_GRADIENT_Q | KJIT_GRADIENT_K | KJIT_GRADIENT_V)))
    return error_set(error, KJIT_ERR_UNSUPPORTED, "attention_backward_sm90 has kernels of dq, dk and dv alone");
  const int64_t own_rows = left & KJIT_GRADIENT_Q ? problem->seq_q : problem->seq_kv;
  kjit_attention_backward_sm90_config config = {.dtype = problem->dtype,
                                                .head_dim = (int32_t)problem->head_dim,
                                                .head_dim_v = (int32_t)problem->head_dim_v,
                                                .causal = problem->flags & KJIT_ATTENTION_CAUSAL ? 1 : 0,
                                                .pass =
                                                    left & KJIT_GRADIENT_Q ? FLASH_BACKWARD_DQ : (int32_t)keys_left};
  bool found = find_tile(&config, own_rows, wanted);
  if (!found && config.pass == (FLASH_BACKWARD_DK | FLASH_BACKWARD_DV)) {
    config.pass = FLASH_BACKWARD_DK; /* dv is chosen next */
    found = find_tile(&config, own_rows, wanted);
  }
  if (!found) return error_set(error, KJIT_ERR_UNSUPPORTED, "no config of attention_backward_sm90 fits");
  memcpy(values, &config, sizeof config);
  return KJIT_OK;
}
