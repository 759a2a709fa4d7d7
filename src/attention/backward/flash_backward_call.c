/* flash_backward's planner, and its launches: the kernel's argument struct and the grid.
 *
 * Threads: everything here is pure, but for what a launch is prepared into, which is its caller's own. */
#include <string.h>

#include "attention/attention_arguments.h"
#include "attention/backward/backward_call.h"
#include "attention/backward/flash_backward.h"
#include "attention/rule.h"
#include "base/error.h"
#include "base/integer.h"
#include "family/config.h"

/* ---- Choosing ---- */

/* A kernel's tile: rows that a block owns, rows of a step, warps. */
struct tile {
  int32_t own, step, n_warps;
};

/* Tiles by the larger head size, as large as ptxas keeps free of spills (tests/jit). `dq` owns queries, the others own
 * keys. dk and dv together need the accumulators of both; above head size 128 they do not fit and become two kernels.
 */
static const struct {
  int32_t columns;
  struct tile dq, both, one;
} tiles[] = {
    {32, {128, 64, 8}, {128, 64, 8}, {128, 64, 8}}, {64, {128, 64, 8}, {128, 64, 8}, {128, 64, 8}},
    {96, {128, 64, 8}, {128, 32, 8}, {128, 64, 8}}, {128, {128, 64, 8}, {128, 32, 8}, {128, 64, 8}},
    {192, {64, 32, 4}, {0, 0, 0}, {64, 32, 4}},     {256, {64, 32, 4}, {0, 0, 0}, {64, 32, 4}},
};

/* The part of `left` that one kernel computes: dq first, because it writes the delta that dk reads. */
static int32_t next_pass(uint32_t left, const struct tile *both) {
  if (left & KJIT_GRADIENT_Q) return FLASH_BACKWARD_DQ;
  if (left & KJIT_GRADIENT_TENSORS) return FLASH_BACKWARD_READ;
  if (left & BACKWARD_DELTA) return FLASH_BACKWARD_DELTA;
  const uint32_t keys = left & (KJIT_GRADIENT_K | KJIT_GRADIENT_V);
  if (keys == (KJIT_GRADIENT_K | KJIT_GRADIENT_V) && both->own == 0) return FLASH_BACKWARD_DK;
  return (int32_t)keys;
}

/* Halve the tile until it fits the card's shared memory, first the step's rows, then the own rows and the warps. */
static void shrink(kjit_flash_backward_config *config, const struct family_place *place) {
  const bool keys = flash_backward_owns_keys(config);
  int32_t *own = keys ? &config->tile_n : &config->tile_m, *step = keys ? &config->tile_m : &config->tile_n;
  while (config_geometry(&flash_backward_family, (const int32_t *)config).shared_bytes > place->shared_per_block) {
    if (*step > 32) {
      *step /= 2;
    } else if (config->n_warps > 2) {
      *own /= 2;
      config->n_warps /= 2;
    } else if (config->stages == 2) {
      config->stages = 1;
    } else {
      return; /* the check of the place says what is wrong */
    }
  }
}

kjit_status flash_backward_choose(const struct backward_wanted *wanted, uint32_t left, const struct family_place *place,
                                  int32_t *values, kjit_error *error) {
  const kjit_attention_problem *problem = wanted->problem;
  kjit_status status = rule_check_heads(problem, "flash_backward", error);
  if (status != KJIT_OK) return status;
  const int64_t columns = problem->head_dim > problem->head_dim_v ? problem->head_dim : problem->head_dim_v;
  size_t row = 0;
  while (columns > tiles[row].columns)
    row++;
  const int32_t pass = next_pass(left, &tiles[row].both);
  const bool keys = pass & (FLASH_BACKWARD_DK | FLASH_BACKWARD_DV);
  const struct tile *tile = !keys                                             ? &tiles[row].dq
                            : pass == (FLASH_BACKWARD_DK | FLASH_BACKWARD_DV) ? &tiles[row].both
                                                                              : &tiles[row].one;
  kjit_flash_backward_config config = {.dtype = problem->dtype,
                                       .head_dim = (int32_t)problem->head_dim,
                                       .head_dim_v = (int32_t)problem->head_dim_v,
                                       .causal = problem->flags & KJIT_ATTENTION_CAUSAL ? 1 : 0,
                                       .pass = pass,
                                       .tile_m = keys ? tile->step : tile->own,
                                       .tile_n = keys ? tile->own : tile->step,
                                       .n_warps = tile->n_warps,
                                       .stages = 2};
  shrink(&config, place);
  memcpy(values, &config, sizeof config);
  status = config_check(&flash_backward_family, values, place, error);
  if (status == KJIT_OK) config_canonicalize(&flash_backward_family, values);
  return status;
}

static uint32_t computes(const int32_t *values) {
  const uint32_t pass = (uint32_t)flash_backward_view(values)->pass;
  return pass & (FLASH_BACKWARD_DQ | FLASH_BACKWARD_READ) ? pass | BACKWARD_DELTA : pass;
}

static uint32_t needs(const int32_t *values) {
  return flash_backward_view(values)->pass & FLASH_BACKWARD_DK ? BACKWARD_DELTA : 0;
}

_Static_assert(KJIT_GRADIENT_Q == FLASH_BACKWARD_DQ && KJIT_GRADIENT_K == FLASH_BACKWARD_DK &&
                   KJIT_GRADIENT_V == FLASH_BACKWARD_DV && BACKWARD_DELTA == FLASH_BACKWARD_DELTA &&
                   KJIT_GRADIENT_TENSORS == FLASH_BACKWARD_READ,
               "a pass is the gradients that it computes");

static kjit_status fit(const struct backward_wanted *wanted, const int32_t *values, kjit_error *error) {
  const kjit_attention_problem *problem = wanted->problem;
  const kjit_flash_backward_config *config = flash_backward_view(values);
  struct attention_traits traits = {config->dtype, config->head_dim, config->head_dim_v, config->causal};
  if (config->pass == FLASH_BACKWARD_DELTA) {
    traits.head_dim = ATTENTION_ANY; /* delta reads neither columns of q nor the mask */
    traits.causal = ATTENTION_ANY;
  }
  return attention_arguments_match(problem, &traits, error);
}

/* ---- Launching ---- */

static kjit_status prepare(struct backward_launch *launch, kjit_runtime *runtime, const int32_t *values,
                           const kjit_attention_backward_args *args, const kjit_attention_problem *problem,
                           const kjit_device_info *device, kjit_error *error) {
  const kjit_flash_backward_config *config = flash_backward_view(values);
  const bool keys = flash_backward_owns_keys(config);
  (void)runtime, (void)device, (void)error;
  launch->grid[0] = keys ? (uint32_t)integer_divide_up(problem->seq_kv, config->tile_n)
                         : (uint32_t)integer_divide_up(problem->seq_q, config->tile_m);
  launch->grid[1] = (uint32_t)(keys ? problem->heads_kv : problem->heads_q);
  launch->grid[2] = (uint32_t)problem->batch;
  backward_fill(args, problem, &launch->params.flash);
  return KJIT_OK;
}

static void add_variant(struct backward_launch *launch, const struct attention_variant_launch *variant) {
  struct flash_backward_variant_params *params = &launch->params.flash_variant;
  params->variant = variant->params;
  params->variant.score_scale = params->base.scale;
}

static void add_gradients(struct backward_launch *launch, const struct kjit_variant_tensor_argument *gradients) {
  struct flash_backward_variant_params *params = &launch->params.flash_variant;
  memcpy(params->gradients, gradients, sizeof params->gradients);
}

const struct backward_family flash_backward = {.family = &flash_backward_family,
                                               .choose = flash_backward_choose,
                                               .computes = computes,
                                               .needs = needs,
                                               .fit = fit,
                                               .prepare = prepare,
                                               .add_variant = add_variant,
                                               .add_gradients = add_gradients};
