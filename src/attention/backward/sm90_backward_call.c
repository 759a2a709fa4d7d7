/* Launches of attention_backward_sm90: tensor maps, encoded once for the same tensors, the kernel's argument struct and
 * the grid.
 *
 * Threads: what a launch is prepared into is its caller's own. Maps are shared by all threads; a look-up takes no lock
 * (base/threads/recent.h), and a miss encodes into the caller's own parameters. */
#include <stddef.h>

#include "attention/attention_arguments.h"
#include "attention/backward/backward_call.h"
#include "attention/backward/sm90_backward.h"
#include "attention/rule.h"
#include "attention/tensor_box.h"
#include "attention/tensor_check.h"
#include "attention_backward_sm90/layout.h"
#include "base/error.h"
#include "base/integer.h"
#include "base/threads/recent.h"
#include "runtime/runtime_internal.h"

enum axis { BATCH, SEQ, HEADS, HEAD_DIM };

/* The maps of a launch, in the order of the argument struct, and everything that they depend on. */
#define MAPS 6
#define OUT  4
struct key {
  struct runtime_tensor tensors[MAPS];
};
#define MAPS_BYTES (MAPS * RUNTIME_TENSOR_MAP_BYTES)

_Static_assert(sizeof(struct attention_backward_map) == RUNTIME_TENSOR_MAP_BYTES, "the kernel's map is the driver's");
_Static_assert(offsetof(struct attention_backward_sm90_params, own) == 0, "the maps are first");
_Static_assert(offsetof(struct attention_backward_sm90_params, rest) == MAPS_BYTES, "six maps, then the rest");

/* How many launches are remembered, a power of two: two or three for each layer of a model. */
#define PLACES 256

static void *create_maps(kjit_runtime *runtime) {
  return recent_create(runtime_mem(runtime), PLACES, sizeof(struct key), MAPS_BYTES);
}

static void destroy_maps(kjit_runtime *runtime, void *maps) {
  recent_destroy(runtime_mem(runtime), maps);
}

static const struct runtime_slot slot = {create_maps, destroy_maps};

static struct runtime_tensor describe(const kjit_tensor *tensor, int32_t rows) {
  return tensor_box_describe(tensor, rows, KJIT_MAP_PROMOTION_256B);
}

/* The tensors of a launch in the order of the maps; NULL where the kernel uses none. */
struct launch_tensors {
  const char *name[MAPS];
  const kjit_tensor *tensor[MAPS];
};

/* The first two tensors are a block's own, the next two are walked over, and the last two are written. */
static struct launch_tensors list_tensors(const kjit_attention_backward_args *args, int32_t pass) {
  if (pass == BACKWARD_SM90_BEGIN) return (struct launch_tensors){0};
  if (pass == BACKWARD_SM90_END) return (struct launch_tensors){.name = {[OUT] = "dq"}, .tensor = {[OUT] = &args->dq}};
  if (pass == BACKWARD_SM90_SUM) pass = FLASH_BACKWARD_DK | FLASH_BACKWARD_DV;
  if (pass & FLASH_BACKWARD_DQ)
    return (struct launch_tensors){{"q", "dout", "k", "v", "dq", NULL},
                                   {&args->q, &args->dout, &args->k, &args->v, &args->dq, NULL}};
  return (struct launch_tensors){{"k", "v", "q", "dout", "dk", "dv"},
                                 {&args->k, &args->v, &args->q, &args->dout,
                                  pass & FLASH_BACKWARD_DK ? &args->dk : NULL,
                                  pass & FLASH_BACKWARD_DV ? &args->dv : NULL}};
}

static kjit_status check_strides(const char *name, const kjit_tensor *tensor, kjit_error *error) {
  for (enum axis axis = BATCH; axis < HEAD_DIM; axis++) {
    if (tensor->shape[axis] == 1 || tensor->stride[axis] < TENSOR_BOX_STRIDE_LIMIT) continue;
    return error_set(error, KJIT_ERR_UNSUPPORTED, "%s.stride[%d] is %lld: must be below 2^39 elements for TMA", name,
                     (int)axis, (long long)tensor->stride[axis]);
  }
  return KJIT_OK;
}

static kjit_status encode(kjit_runtime *runtime, const struct launch_tensors *tensors, const struct key *key,
                          struct attention_backward_map *maps, kjit_error *error) {
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < MAPS && status == KJIT_OK; i++) {
    if (!tensors->tensor[i]) continue;
    status = check_strides(tensors->name[i], tensors->tensor[i], error);
    if (status == KJIT_OK)
      status = runtime_tensor_map_encode(runtime, &key->tensors[i], tensors->name[i], &maps[i], error);
  }
  return status;
}

/* The maps that are remembered for these tensors, or new ones, as the first members of `params`. Maps 2 and 3 are those
 * of the tensors that a block walks over, whose boxes have the rows of one step; the others are loaded and stored by a
 * warpgroup's rows. */
static kjit_status get_maps(kjit_runtime *runtime, const kjit_attention_backward_args *args,
                            const kjit_attention_backward_sm90_config *config,
                            struct attention_backward_sm90_params *params, kjit_error *error) {
  const struct launch_tensors tensors = list_tensors(args, config->pass);
  struct recent *kept = runtime_slot_get(runtime, &slot);
  struct key key = {0};
  if (!kept) return error_no_memory(error);
  for (size_t i = 0; i < MAPS; i++) {
    const bool is_step = i == 2 || i == 3;
    if (tensors.tensor[i])
      key.tensors[i] = describe(tensors.tensor[i], is_step ? config->tile : BACKWARD_SM90_GROUP_ROWS);
  }
  if (recent_get(kept, &key, params)) return KJIT_OK;
  const kjit_status status = encode(runtime, &tensors, &key, &params->own, error);
  if (status == KJIT_OK) recent_put(kept, &key, params);
  return status;
}

/* ---- Sums of dq ---- */

static void place(struct backward_launch *launch, float *sums, int *turns) {
  launch->params.sm90.next_tile = turns + launch->turns;
  launch->params.sm90.done = launch->params.sm90.next_tile + 1;
  launch->params.sm90.sums = sums;
  launch->params.sm90.turns = turns;
}

/* The kernel takes turns only where its tiles of keys must come in one order. */
static void place_without_turns(struct backward_launch *launch, float *sums, int *turns) {
  place(launch, sums, turns);
  launch->params.sm90.turns = NULL;
  launch->params.sm90.states = turns;
}

/* 2^32 times the golden ratio's part behind the point: multiples of it, without what is before the point, lie evenly
 * between 0 and 1, whichever of them are taken one after the other. */
#define GOLDEN_PART 0x9e3779b9u

/* 2^32 times how far apart two neighbouring tiles of keys begin, so that those of a head's tiles lie evenly over all
 * steps; 0 where all tiles begin with the first step (schedule.cuh). */
static uint64_t spread_of(const kjit_attention_backward_sm90_config *config, const kjit_attention_problem *problem,
                          bool in_order) {
  if (config->pass != BACKWARD_SM90_SUM || !config->stores || in_order || problem->seq_kv < 1) return 0;
  if (config->causal) return sm90_backward_carries(config) ? GOLDEN_PART : 0;
  const uint64_t steps = (uint64_t)integer_divide_up(problem->seq_q, config->tile);
  const uint64_t tiles = (uint64_t)integer_divide_up(problem->seq_kv, sm90_backward_own_rows(config));
  return (steps << 32) / tiles;
}

/* What the three kernels that sum dq share: a tile of sums for every 64 queries, in whole tiles of the steps, and two
 * counters for each (sums.cuh); and a counter for each key head. */
static void share_sums(struct backward_launch *launch, const kjit_attention_backward_sm90_config *config,
                       const kjit_attention_backward_args *args, const kjit_attention_problem *problem) {
  const int32_t pass = config->pass;
  if (pass != BACKWARD_SM90_SUM && pass != BACKWARD_SM90_BEGIN && pass != BACKWARD_SM90_END) return;
  const int64_t blocks = integer_divide_up(problem->seq_q, config->tile) * config->tile / BACKWARD_SM90_GROUP_ROWS;
  const size_t tiles = (size_t)(problem->batch * problem->heads_q * blocks);
  launch->params.sm90.row_blocks = (int)blocks;
  const bool causal = problem->flags & KJIT_ATTENTION_CAUSAL;
  const int64_t unseen = problem->seq_kv == 0                         ? problem->seq_q
                         : causal && problem->seq_q > problem->seq_kv ? problem->seq_q - problem->seq_kv
                                                                      : 0; /* queries that see no key */
  launch->params.sm90.zero_blocks = (int)integer_divide_up(unseen, BACKWARD_SM90_GROUP_ROWS);
  launch->sum_bytes = tiles * (size_t)BACKWARD_SM90_SUM_BYTES(config->head_dim, config->tile);
  launch->turns = 2 * tiles;
  launch->counters = (size_t)(problem->batch * problem->heads_kv) + 1; /* and that of a persistent launch */
  const bool in_order = args->flags & KJIT_ATTENTION_DETERMINISTIC;
  launch->params.sm90.spread = spread_of(config, problem, in_order);
  launch->place = pass == BACKWARD_SM90_SUM && !in_order ? place_without_turns : place;
}

/* What a section of heads may take of L2, so that what else goes through it has room. */
#define SECTION_BYTES ((int64_t)16 << 20)

/* Own rows from which on sections were faster: of fewer, all tiles of a head are over before others are missed. Half as
 * many with persistent blocks and with head sizes above 128. docs/backward.md has the measurements. */
#define SECTION_ROWS 2048

/* So many heads have SECTION_BYTES of what blocks step over and of sums, `least` at least, in sections of about the
 * same size. */
static int64_t heads_within(int64_t bytes, int64_t least, int64_t heads) {
  int64_t most = least;
  while (most < heads && most * 2 * bytes <= SECTION_BYTES)
    most *= 2;
  return integer_divide_up(heads, integer_divide_up(heads, most));
}

/* The same for the kernel that sums dq in one order. */
static int64_t heads_in_order(const kjit_attention_problem *problem) {
  const int64_t rows = problem->seq_q * (problem->heads_q / problem->heads_kv);
  const int64_t bytes = rows * (2 * (problem->head_dim + problem->head_dim_v) + 4 * problem->head_dim);
  return heads_within(bytes, 2, problem->batch * problem->heads_kv);
}

/* How many heads are worked on together. In causal attention their tiles come by length. Where tiles of keys take turns
 * those of one head would follow each other by the least distance, so that what delays one delays all behind it; with
 * other heads' tiles between them they begin a few steps apart. Otherwise one, as all tiles of a head are equally long.
 */
static int section_of(const kjit_attention_backward_sm90_config *config, const kjit_attention_problem *problem,
                      bool in_order) {
  const bool keys = sm90_backward_owns_keys(config), sums = config->pass == BACKWARD_SM90_SUM;
  const int64_t group = problem->heads_q / problem->heads_kv;
  const int64_t rows = keys ? problem->seq_q * group : problem->seq_kv;
  const int64_t bytes = rows * (2 * (problem->head_dim + problem->head_dim_v) + (sums ? 4 * problem->head_dim : 0));
  const int64_t heads = problem->batch * (keys ? problem->heads_kv : problem->heads_q);
  const int64_t from = config->persistent || config->head_dim > 128 ? SECTION_ROWS / 2 : SECTION_ROWS;
  if (sums && in_order) return (int)heads_in_order(problem);
  if (!config->causal || (keys ? problem->seq_kv : problem->seq_q) < from) return 1;
  return (int)heads_within(bytes, 1, heads);
}

/* Pass 16: how many parts a key head's sums have, two for each tile of pass 7; and for how many query heads they may
 * still be missing when the first multiprocessors find no more tiles: those of the last tiles, and of a whole section
 * where tiles take turns. */
static void expect_parts(struct backward_launch *launch, const kjit_attention_backward_sm90_config *config,
                         const kjit_attention_problem *problem, const kjit_device_info *device, bool in_order) {
  const bool wide = config->head_dim > 2 * BACKWARD_SM90_GROUP_ROWS; /* sharing.cuh */
  const int64_t rows = wide ? BACKWARD_SM90_GROUP_ROWS : 2 * BACKWARD_SM90_GROUP_ROWS;
  const int64_t tiles = integer_divide_up(problem->seq_kv, rows), heads = problem->batch * problem->heads_q;
  const int64_t group = problem->heads_q / problem->heads_kv;
  int64_t late = tiles ? 2 * device->multiprocessors / tiles + 1 : 0; /* key heads */
  if (tiles && in_order && heads_in_order(problem) > late) late = heads_in_order(problem);
  launch->params.sm90.parts = (int)(2 * tiles);
  launch->params.sm90.section = (int)(late * group < heads ? late * group : heads);
}

/* As many blocks as the card has multiprocessors, each of which works on one tile after the other. */
static void stay(struct backward_launch *launch, const kjit_device_info *device) {
  const uint64_t tiles = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
  for (size_t i = 0; i < 3; i++)
    launch->params.sm90.grid[i] = launch->grid[i];
  launch->grid[0] = (uint32_t)(tiles < (uint64_t)device->multiprocessors ? tiles : (uint64_t)device->multiprocessors);
  launch->grid[1] = launch->grid[2] = 1;
}

static kjit_status prepare(struct backward_launch *launch, kjit_runtime *runtime, const int32_t *values,
                           const kjit_attention_backward_args *args, const kjit_attention_problem *problem,
                           const kjit_device_info *device, kjit_error *error) {
  const kjit_attention_backward_sm90_config *config = sm90_backward_view(values);
  const bool keys = sm90_backward_owns_keys(config);
  const bool in_order = args->flags & KJIT_ATTENTION_DETERMINISTIC;
  launch->is_dependent = (keys || config->pass == BACKWARD_SM90_END) && runtime_has_dependents(device);
  launch->params.sm90 = (struct attention_backward_sm90_params){0};
  launch->grid[0] =
      (uint32_t)integer_divide_up(keys ? problem->seq_kv : problem->seq_q, sm90_backward_own_rows(config));
  launch->params.sm90.section = section_of(config, problem, in_order);
  share_sums(launch, config, args, problem);
  launch->grid[1] = (uint32_t)(keys ? problem->heads_kv : problem->heads_q);
  launch->grid[2] = (uint32_t)problem->batch;
  if (config->pass == BACKWARD_SM90_END) expect_parts(launch, config, problem, device, in_order);
  if (config->persistent) stay(launch, device);
  backward_fill(args, problem, &launch->params.sm90.rest);
  return get_maps(runtime, args, config, &launch->params.sm90, error);
}

static uint32_t computes(const int32_t *values) {
  const uint32_t pass = (uint32_t)sm90_backward_view(values)->pass;
  switch (pass) {
  case BACKWARD_SM90_BEGIN:
    return BACKWARD_DELTA | BACKWARD_ZEROS;
  case BACKWARD_SM90_SUM:
    return KJIT_GRADIENT_K | KJIT_GRADIENT_V | BACKWARD_SUMS;
  case BACKWARD_SM90_END:
    return KJIT_GRADIENT_Q;
  default:
    return pass & FLASH_BACKWARD_DQ ? pass | BACKWARD_DELTA : pass;
  }
}

static uint32_t needs(const int32_t *values) {
  const int32_t pass = sm90_backward_view(values)->pass;
  if (pass == BACKWARD_SM90_SUM) return BACKWARD_DELTA | BACKWARD_ZEROS;
  if (pass == BACKWARD_SM90_END) return BACKWARD_SUMS;
  return pass & FLASH_BACKWARD_DK ? BACKWARD_DELTA : 0;
}

static kjit_status fit(const struct backward_wanted *wanted, const int32_t *values, kjit_error *error) {
  const kjit_attention_problem *problem = wanted->problem;
  const kjit_attention_backward_sm90_config *config = sm90_backward_view(values);
  struct attention_traits traits = {config->dtype, config->head_dim, config->head_dim_v, config->causal};
  const bool is_around = config->pass == BACKWARD_SM90_BEGIN || config->pass == BACKWARD_SM90_END;
  if (wanted->is_variant && (is_around || config->pass == BACKWARD_SM90_SUM))
    return rule_broken(error, "pass", config->pass, "1 (dq), 2 (dk), 4 (dv) or 6 (dk and dv) with a variant");
  if (wanted->is_variant && sm90_backward_splits(config))
    return rule_broken(error, "pass", config->pass, "1 (dq), 2 (dk) or 4 (dv) with a variant and wide heads");
  if (is_around) traits.causal = ATTENTION_ANY;                             /* they know no mask */
  if (config->pass == BACKWARD_SM90_END) traits.head_dim_v = ATTENTION_ANY; /* nor columns of v */
  return attention_arguments_match(problem, &traits, error);
}

static void add_variant(struct backward_launch *launch, const struct attention_variant_launch *variant) {
  struct attention_backward_sm90_variant_params *params = &launch->params.sm90_variant;
  params->variant = variant->params;
  params->variant.score_scale = params->base.rest.scale;
}

const struct backward_family sm90_backward = {.family = &sm90_backward_family,
                                              .arch = HOPPER_ARCH,
                                              .choose = sm90_backward_choose,
                                              .choose_all = sm90_backward_choose_sums,
                                              .computes = computes,
                                              .needs = needs,
                                              .fit = fit,
                                              .prepare = prepare,
                                              .add_variant = add_variant};
