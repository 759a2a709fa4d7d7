/* One call of attention_short_sm90. The arguments were checked, the config was fitted to them and its kernel found.
 * What is left: the tensor maps, encoded once for the same tensors, and the kernel's argument struct.
 *
 * Threads: a call belongs to its caller and is only read once it is prepared. Maps are shared by all threads, as
 * sm90_maps.h says. */
#include "attention/short/short_call.h"

#include <stdbool.h>
#include <stddef.h>

#include "attention/attention_arguments.h"
#include "attention/rule.h"
#include "attention/short/short_choose.h"
#include "attention/sm90/sm90_maps.h"
#include "attention/tensor_check.h"
#include "base/error.h"
#include "base/integer.h"
#include "family/config.h"
#include "runtime/runtime_internal.h"

_Static_assert(offsetof(struct attention_short_sm90_params, lse) == SM90_MAPS * RUNTIME_TENSOR_MAP_BYTES,
               "q, k, v, o, then the rest");

_Static_assert(sizeof(struct short_call) <= ATTENTION_DENSE_CALL_BYTES, "a dense launch reads no more");

enum lse_axis { LSE_BATCH, LSE_HEADS };

/* What the family keeps in a runtime: its maps. */
static void *create_maps(kjit_runtime *runtime) {
  return sm90_maps_create(runtime_mem(runtime));
}

static void destroy_maps(kjit_runtime *runtime, void *user) {
  recent_destroy(runtime_mem(runtime), user);
}

static const struct runtime_slot slot = {create_maps, destroy_maps};

/* ---- What the planner and the calls ask ---- */

static kjit_status choose(const kjit_attention_problem *problem, const struct family_place *place, int32_t *values,
                          kjit_error *error) {
  const struct sm90_card card = sm90_card_of(place->sm_count, &place->figures);
  return short_choose(problem, &card, (kjit_attention_short_sm90_config *)values, error);
}

static kjit_status fit(const kjit_attention_problem *problem, int32_t *values, kjit_error *error) {
  const kjit_attention_short_sm90_config *config = short_config_view(values);
  const struct attention_traits traits = {config->dtype, config->head_dim, config->head_dim_v, config->causal};
  kjit_status status = attention_arguments_match(problem, &traits, error);
  if (status == KJIT_OK && problem->seq_kv > config->tile_n)
    status = error_set(error, KJIT_ERR_INVALID_CONFIG, "tile_n is %d: must be at least the tensors' seq_kv, %lld",
                       (int)config->tile_n, (long long)problem->seq_kv);
  return status == KJIT_OK ? short_check_problem(problem, error) : status;
}

/* ---- Preparing ---- */

enum {
  FEW_TILES = 8,      /* of a key head: so few make whole heads the runs' unit */
  MANY_HEADS = 8,     /* key heads of a run: with fewer, one more or less would be noticed */
  SECTOR_COLUMNS = 16 /* of a sector of L2, 32 bytes */
};

/* Many tiles of heads that share no keys, whose rows are no whole sectors: neighbouring heads at the same time, each by
 * a block of threads of its own. On an H100 and an H200, us, so and by runs of tiles: 72 columns, 70 x 24 x 961/146,
 * heads first, 241 and 376, 232 and 289; tokens first 244 and 503, 235 and 389; heads first, 101 x 20 x 733/211 287 and
 * 285 on an H200. Heads that share keys are up to 6 % slower so there, as are those of 80 and 96 columns. */
static bool is_read_by_heads(const kjit_attention_problem *problem, const kjit_attention_short_sm90_config *config,
                             int64_t resident) {
  return (config->head_dim % SECTOR_COLUMNS || config->head_dim_v % SECTOR_COLUMNS) && config->stages == 1 &&
         problem->heads_q == problem->heads_kv && problem->batch * problem->heads_kv >= MANY_HEADS * resident;
}

/* Divide the tiles into as many runs as blocks of threads run at a time, or into key heads where several blocks have
 * room for one head each: the card then starts the next one wherever one ends. */
static void cut(struct short_call *call, const kjit_attention_problem *problem,
                const kjit_attention_short_sm90_config *config, uint32_t sm_count) {
  struct attention_short_sm90_params *params = &call->params;
  const int64_t tiles = short_tiles(problem), heads = problem->batch * problem->heads_kv;
  const int64_t resident = integer_min(tiles, (int64_t)sm_count * config->blocks_per_sm);
  const bool is_small = config->stages == 1 && config->blocks_per_sm > 1 && tiles <= FEW_TILES * heads;
  const bool is_alone = is_small || (tiles > FEW_TILES * heads && is_read_by_heads(problem, config, resident));
  const bool whole = is_alone || (tiles <= FEW_TILES * heads && heads >= MANY_HEADS * resident);
  const int64_t blocks = is_alone ? heads : resident;
  const int64_t units = whole ? heads : tiles, step = whole ? blocks : 1;
  call->blocks = (uint32_t)blocks;
  params->query_tiles = (int)integer_divide_up(problem->seq_q, SHORT_ROWS);
  params->whole_heads = whole;
  params->run_length = (int)(units / blocks);
  params->run_rest = (int)(units % blocks);
  params->step_batches = (int)(step / problem->heads_kv);
  params->step_heads = (int)(step % problem->heads_kv);
}

static void fill(const kjit_attention_args *args, const kjit_attention_problem *problem,
                 struct attention_short_sm90_params *params) {
  const struct attention_scale scale = attention_arguments_scale(args->scale, problem->head_dim);
  params->lse = args->lse.data;
  params->lse_batch_stride = args->lse.data ? tensor_stride(&args->lse, LSE_BATCH) : 0;
  params->lse_head_stride = args->lse.data ? tensor_stride(&args->lse, LSE_HEADS) : 0;
  params->heads_kv = (int)problem->heads_kv;
  params->group = (int)(problem->heads_q / problem->heads_kv);
  params->seq_q = (int)problem->seq_q;
  params->seq_kv = (int)problem->seq_kv;
  params->scale = scale.scale;
  params->scale_log2 = scale.scale_log2;
}

static bool shares_lines(const kjit_attention_problem *problem, const kjit_attention_short_sm90_config *config,
                         const kjit_device_info *device) {
  if (config->head_dim % SHORT_BAND_COLUMNS == 0) return false;
  const struct family_place place = family_place_of_device(device);
  const struct sm90_card card = sm90_card_of(place.sm_count, &place.figures);
  return short_shares_lines(problem, &card, config);
}

static kjit_status prepare(void *user, kjit_runtime *runtime, const struct attention_launch *launch,
                           const kjit_attention_args *args, const kjit_attention_problem *problem,
                           const kjit_device_info *device, kjit_error *error) {
  struct short_call *call = user;
  const kjit_attention_short_sm90_config *config = short_config_view(launch->values);
  const struct sm90_boxes boxes = {1, config->tile_n, KJIT_MAP_PROMOTION_128B, shares_lines(problem, config, device)};
  struct recent *maps = runtime_slot_get(runtime, &slot);
  if (!maps) return error_no_memory(error);
  const kjit_status status =
      sm90_maps_get(maps, runtime, args, &boxes, (struct attention_tensor_map *)&call->params, launch->is_again, error);
  if (status != KJIT_OK) return status;
  call->kernel = launch->kernel;
  fill(args, problem, &call->params);
  cut(call, problem, config, device->multiprocessors);
  return KJIT_OK;
}

static kjit_status enqueue(const void *user, const struct attention_variant_blocks *blocks, CUstream stream,
                           kjit_error *error) {
  const struct short_call *call = user;
  const kjit_geometry *geometry = &call->kernel->geometry;
  const uint32_t grid[3] = {call->blocks, 1, 1};
  (void)blocks; /* the family computes no variants */
  return runtime_kernel_enqueue(call->kernel->kernel, grid, geometry->threads, geometry->shared_bytes, &call->params,
                                stream, error);
}

const struct attention_family short_attention = {.family = &short_family,
                                                 .arch = HOPPER_ARCH,
                                                 .is_special = true,
                                                 .choose = choose,
                                                 .fit = fit,
                                                 .prepare = prepare,
                                                 .enqueue = enqueue};
