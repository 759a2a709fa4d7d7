/* One call of attention_sm90. The arguments were checked, the config was fitted to them and its kernel found. What is
 * left:
 *
 * 1. the tensor maps, encoded once for the same tensors (sm90_maps.h);
 * 2. the kernel's argument struct;
 * 3. at each launch, the memory that belongs to a stream: tile-scheduler counters, from which the blocks of a causal
 *    problem take their tiles (sm90_tickets.h), and partial results of split-KV or copies of K and V
 *    (stream_workspace.h), which another kernel makes in front of the launch (sm90_padding.h).
 *
 * Threads: a call belongs to its caller and is only read once it is prepared. Maps, counters and workspace are shared
 * by all threads, each as its own header says. */
#include "attention/sm90/sm90_call.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

#include "attention/attention_arguments.h"
#include "attention/attention_variant_launch.h"
#include "attention/rule.h"
#include "attention/sm90/sm90_choose.h"
#include "attention/sm90/sm90_maps.h"
#include "attention/sm90/sm90_tickets.h"
#include "attention/sm90/sm90_tiles.h"
#include "attention/stream_workspace.h"
#include "attention/tensor_check.h"
#include "base/error.h"
#include "base/integer.h"
#include "family/config.h"
#include "runtime/runtime_internal.h"

/* What the family keeps in a runtime. */
struct state {
  struct recent *maps; /* sm90_maps.h */
  struct sm90_tickets *tickets;
  struct stream_workspace *workspace;
  struct recent *padded_maps; /* sm90_padding.h */
  struct recent *term_maps;   /* sm90_maps.h */
};

_Static_assert(offsetof(struct attention_sm90_variant_params, base) == 0,
               "judged_block.cuh reads the parameters by the address of base");
_Static_assert(offsetof(struct sm90_call, params.base) + sizeof(struct attention_sm90_params) <=
                   ATTENTION_DENSE_CALL_BYTES,
               "a dense launch reads no more");

static void destroy_state(kjit_runtime *runtime, void *user) {
  struct state *state = user;
  const struct mem *mem = runtime_mem(runtime);
  stream_workspace_destroy(state->workspace);
  sm90_tickets_destroy(state->tickets);
  recent_destroy(mem, state->term_maps);
  recent_destroy(mem, state->padded_maps);
  recent_destroy(mem, state->maps);
  mem_free(mem, state);
}

static void *create_state(kjit_runtime *runtime) {
  const struct mem *mem = runtime_mem(runtime);
  struct state *state = mem_alloc(mem, sizeof *state);
  if (!state) return NULL;
  state->maps = sm90_maps_create(mem);
  state->tickets = sm90_tickets_create(runtime);
  state->workspace = stream_workspace_create(runtime);
  state->padded_maps = sm90_padding_maps_create(mem);
  state->term_maps = sm90_maps_create_terms(mem);
  if (state->maps && state->tickets && state->workspace && state->padded_maps && state->term_maps) return state;
  destroy_state(runtime, state);
  return NULL;
}

static const struct runtime_slot slot = {create_state, destroy_state};

/* ---- What the planner and the calls ask ---- */

enum lse_axis { LSE_BATCH, LSE_HEADS };

static kjit_status choose(const kjit_attention_problem *problem, const struct family_place *place, int32_t *values,
                          kjit_error *error) {
  const struct sm90_card card = sm90_card_of(place->sm_count, &place->figures);
  return sm90_choose(problem, &card, (kjit_attention_sm90_config *)values, error);
}

static void settle(const kjit_attention_problem *problem, const struct family_place *place, int32_t *values) {
  const struct sm90_card card = sm90_card_of(place->sm_count, &place->figures);
  sm90_take_pairs(problem, &card, (kjit_attention_sm90_config *)values);
}

static void suit(const kjit_attention_problem *problem, const struct attention_variant_launch *variant,
                 int32_t *values) {
  const struct sm90_variant_needs needs = {.is_narrow = variant->source.is_narrow || variant->is_mapped,
                                           .is_stepped = variant->source.is_stepped,
                                           .is_listed = variant->is_listed,
                                           .is_mapped = variant->is_mapped,
                                           .is_scored = variant->source.has_score,
                                           .is_tiled = variant->has_pairs,
                                           .is_staged = variant->has_chunks,
                                           .is_boxed = variant->has_boxes,
                                           .gathered = variant->gathered,
                                           .is_curved = variant->source.is_curved};
  sm90_suit_variant(problem, &needs, (kjit_attention_sm90_config *)values);
}

static kjit_status fit(const kjit_attention_problem *problem, int32_t *values, kjit_error *error) {
  const kjit_attention_sm90_config *config = sm90_config_view(values);
  const struct attention_traits traits = {config->dtype, config->head_dim, config->head_dim_v, config->causal};
  const kjit_status status = attention_arguments_match(problem, &traits, error);
  return status == KJIT_OK ? sm90_check_problem(problem, error) : status;
}

/* The number of splits for a problem. Costs some hundred nanoseconds when tiles may be split. */
static uint32_t count_parts(const kjit_attention_problem *problem, const int32_t *values,
                            const struct family_place *place) {
  const kjit_attention_sm90_config *config = sm90_config_view(values);
  if (!config->split) return 1;
  const struct sm90_tiles tiles = sm90_tiles_of(problem, config);
  const struct sm90_card card = sm90_card_of(place->sm_count, &place->figures);
  return (uint32_t)sm90_tiles_parts(&tiles, config, &card);
}

static const kjit_family *front(const int32_t *values, int32_t *front_values) {
  return sm90_padding_is_possible(sm90_config_view(values), front_values) ? &attention_padding_family : NULL;
}

static bool pays_front(const kjit_attention_problem *problem, const int32_t *values, const struct family_place *place) {
  const struct sm90_card card = sm90_card_of(place->sm_count, &place->figures);
  return sm90_padding_pays(problem, sm90_config_view(values), &card);
}

/* ---- Preparing ---- */

/* The size of an L2 section. Tiles of a narrow mask that run at the same time read few of a head's keys, so that more
 * heads share L2; with few sections a launch ends with the shortest tiles of all of them. */
static int64_t count_section(const kjit_attention_problem *problem, const struct sm90_tiles *tiles,
                             const struct attention_variant_launch *variant, const kjit_device_info *device) {
  enum { NARROW_KEYS = 2048 };
  kjit_attention_problem at_once = *problem;
  if (variant && variant->source.is_narrow) at_once.seq_kv = integer_min(problem->seq_kv, NARROW_KEYS);
  return sm90_tiles_section(tiles, &at_once, device->multiprocessors, device->l2_bytes);
}

static bool shares_lines(const kjit_attention_problem *problem, const kjit_attention_sm90_config *config,
                         const struct attention_variant_launch *variant, const kjit_device_info *device) {
  if (variant || (config->head_dim % SM90_CHUNK_COLUMNS == 0 && config->head_dim_v % SM90_CHUNK_COLUMNS == 0))
    return false;
  const struct family_place place = family_place_of_device(device);
  const struct sm90_card card = sm90_card_of(place.sm_count, &place.figures);
  return sm90_shares_lines(problem, &card, config);
}

static void fill(const kjit_attention_args *args, const kjit_attention_problem *problem, const struct sm90_tiles *tiles,
                 int64_t section, struct attention_sm90_params *params) {
  const struct attention_scale scale = attention_arguments_scale(args->scale, problem->head_dim);
  params->lse = args->lse.data;
  params->lse_batch_stride = args->lse.data ? tensor_stride(&args->lse, LSE_BATCH) : 0;
  params->lse_head_stride = args->lse.data ? tensor_stride(&args->lse, LSE_HEADS) : 0;
  params->tickets = NULL;
  params->batch = (int)problem->batch;
  params->heads = (int)tiles->heads;
  params->heads_per_kv = (int)tiles->heads_per_kv;
  params->seq_q = (int)problem->seq_q;
  params->seq_kv = (int)problem->seq_kv;
  params->query_tiles = (int)tiles->query_tiles;
  params->section = (int)section;
  params->scale = scale.scale;
  params->scale_log2 = scale.scale_log2;
  params->group = (int)(problem->heads_q / problem->heads_kv);
  params->splits = 1;
  params->partial_rows = (int)tiles->rows;
  params->partials = NULL;
  params->arrivals = NULL;
}

/* Fill in tiles and, when their keys are split, what the splits need. */
static void cut(struct sm90_call *call, struct state *state, const struct sm90_tiles *tiles, uint32_t parts,
                const kjit_attention_sm90_config *config, bool is_uneven, const kjit_device_info *device) {
  call->sm_count = device->multiprocessors;
  call->tiles = (uint32_t)tiles->count;
  call->tickets = is_uneven && call->tiles > device->multiprocessors ? state->tickets : NULL;
  call->workspace = NULL;
  if (parts == 1) return;
  assert(parts <= tiles->key_blocks); /* a split without keys would leave its counter of arrivals as it is */
  call->tickets = NULL;               /* splits are about equally long, so they are dealt out beforehand */
  call->workspace = state->workspace;
  call->parts = parts;
  call->partial_bytes = sm90_tiles_partial_bytes(tiles, config, parts);
  call->arrivals = sm90_tiles_arrivals(tiles, config, parts);
}

/* Have K and V copied in front of the launch, unless they lie well. Such a call is not to be kept as a dense one that
 * came again: what is kept has no room for it, and looking it all up takes little of the time of the copy. */
static void pad(struct sm90_call *call, kjit_runtime *runtime, struct state *state,
                const struct attention_launch *launch, const kjit_attention_args *args) {
  call->is_padded = launch->front && !call->workspace &&
                    sm90_padding_prepare(&call->padding, args, sm90_config_view(launch->values), launch->front);
  if (!call->is_padded) return;
  call->padding.runtime = runtime;
  call->padding.maps = state->padded_maps;
  call->workspace = state->workspace;
  call->partial_bytes = call->padding.bytes;
  call->arrivals = 0;
  if (launch->is_again) *launch->is_again = false;
}

static kjit_status prepare(void *user, kjit_runtime *runtime, const struct attention_launch *launch,
                           const kjit_attention_args *args, const kjit_attention_problem *problem,
                           const kjit_device_info *device, kjit_error *error) {
  struct sm90_call *call = user;
  const kjit_attention_sm90_config *config = sm90_config_view(launch->values);
  struct state *state = runtime_slot_get(runtime, &slot);
  if (!state) return error_no_memory(error);
  const struct sm90_boxes boxes = {config->packed, config->tile_n, KJIT_MAP_PROMOTION_256B,
                                   shares_lines(problem, config, launch->variant, device)};
  const kjit_status status = sm90_maps_get(state->maps, runtime, args, &boxes,
                                           (struct attention_tensor_map *)&call->params.base, launch->is_again, error);
  if (status != KJIT_OK) return status;
  const struct sm90_tiles tiles = sm90_tiles_of(problem, config);
  call->kernel = launch->kernel;
  fill(args, problem, &tiles, count_section(problem, &tiles, launch->variant, device), &call->params.base);
  /* The tiles of a causal mask, and of a variant's, differ in length. */
  cut(call, state, &tiles, launch->parts, config, config->causal || launch->variant, device);
  pad(call, runtime, state, launch, args);
  if (launch->variant)
    attention_variant_fill(launch->variant, &call->params.base.scale, &call->params.base.scale_log2,
                           &call->params.variant);
  if (launch->variant && launch->variant->has_boxes && sm90_term_slots(config) > 0)
    return sm90_maps_get_terms(state->term_maps, runtime, launch->variant, config->dtype, &call->params.terms, error);
  return KJIT_OK;
}

/* ---- Launching ---- */

/* `params` begins with the dense kernel's, which `base` is: a variant's kernel takes what follows too. */
static kjit_status enqueue_as(const struct sm90_call *call, const struct attention_sm90_params *base, bool is_dependent,
                              CUstream stream, kjit_error *error) {
  const kjit_geometry *geometry = &call->kernel->geometry;
  const uint32_t pieces = call->tiles * (uint32_t)base->splits;
  const uint32_t blocks = pieces < call->sm_count ? pieces : call->sm_count;
  const uint32_t grid[3] = {blocks, 1, 1};
  return runtime_kernel_enqueue_behind(call->kernel->kernel, grid, geometry->threads, geometry->shared_bytes, base,
                                       is_dependent, stream, error);
}

static kjit_status enqueue_params(const struct sm90_call *call, const struct attention_sm90_params *base,
                                  CUstream stream, kjit_error *error) {
  return enqueue_as(call, base, false, stream, error);
}

/* Give `base` the stream's memory, and enqueue. */
static kjit_status enqueue_split(const struct sm90_call *call, struct attention_sm90_params *base, CUstream stream,
                                 kjit_error *error) {
  struct stream_space space;
  if (!stream_workspace_get(call->workspace, call->partial_bytes, call->arrivals, stream, &space))
    return enqueue_params(call, base, stream, error);
  base->splits = (int)call->parts;
  base->partials = space.partials;
  base->arrivals = space.arrivals;
  const kjit_status status = enqueue_params(call, base, stream, error);
  stream_workspace_put(call->workspace, &space, stream);
  return status;
}

/* Copy K and V into the stream's memory, and enqueue. Without memory the tensors are read where they are. */
static kjit_status enqueue_padded(const struct sm90_call *call, struct attention_sm90_params *base, CUstream stream,
                                  kjit_error *error) {
  struct stream_space space;
  if (call->tickets) base->tickets = sm90_tickets_of(call->tickets, stream);
  if (!stream_workspace_get(call->workspace, call->partial_bytes, call->arrivals, stream, &space))
    return enqueue_params(call, base, stream, error);
  kjit_status status = sm90_padding_enqueue(&call->padding, space.partials, base, stream, error);
  if (status == KJIT_OK) status = enqueue_params(call, base, stream, error);
  stream_workspace_put(call->workspace, &space, stream);
  return status;
}

static kjit_status enqueue_with_memory(const struct sm90_call *call, struct attention_sm90_params *base,
                                       CUstream stream, kjit_error *error) {
  if (call->is_padded) return enqueue_padded(call, base, stream, error);
  if (call->workspace) return enqueue_split(call, base, stream, error);
  base->tickets = sm90_tickets_of(call->tickets, stream);
  return enqueue_params(call, base, stream, error);
}

static kjit_status enqueue_variant(const struct sm90_call *call, const struct attention_variant_blocks *blocks,
                                   CUstream stream, kjit_error *error) {
  struct attention_sm90_variant_params params = call->params;
  params.variant.lists = blocks->lists;
  params.variant.map.states = blocks->states;
  if (call->workspace) return enqueue_with_memory(call, &params.base, stream, error);
  if (call->tickets) params.base.tickets = sm90_tickets_of(call->tickets, stream);
  return enqueue_as(call, &params.base, blocks->may_depend, stream, error);
}

static kjit_status enqueue(const void *user, const struct attention_variant_blocks *blocks, CUstream stream,
                           kjit_error *error) {
  const struct sm90_call *call = user;
  if (blocks) return enqueue_variant(call, blocks, stream, error);
  if (!call->workspace && !call->tickets) return enqueue_params(call, &call->params.base, stream, error);
  struct attention_sm90_params params = call->params.base;
  return enqueue_with_memory(call, &params, stream, error);
}

static uint32_t terms_bytes(const struct attention_variant_launch *variant, const kjit_attention_sm90_config *config) {
  const int slots = variant->has_boxes ? sm90_term_slots(config) : 0;
  if (slots > 0) return SM90_ALIGNMENT + (uint32_t)(config->consumers * slots * SM90_TERM_BOX_BYTES);
  return variant->has_chunks && sm90_stages_terms(config) ? sm90_terms_bytes(config) : 0;
}

/* Bytes of `wanted` where a variant's shared memory has room for them beside all else, and 0 otherwise. */
static uint32_t as_fits(const struct attention_variant_launch *variant, const kjit_attention_sm90_config *config,
                        uint32_t wanted) {
  const uint32_t all = sm90_own_bytes(config) + sm90_variant_bytes(config) + terms_bytes(variant, config);
  return all + wanted <= sm90_room(config) ? wanted : 0;
}

static void tiling(const kjit_attention_problem *problem, const struct attention_variant_launch *variant,
                   const int32_t *values, struct attention_tiling *out) {
  const kjit_attention_sm90_config *config = sm90_config_view(values);
  const struct sm90_tiles tiles = sm90_tiles_of(problem, config);
  const int consumers = sm90_tile_consumers(config);
  *out = (struct attention_tiling){.query_tiles = (int)tiles.query_tiles,
                                   .tile_queries = SM90_GROUP_ROWS * consumers / config->packed,
                                   .heads = (int)tiles.heads,
                                   .packed = config->packed,
                                   .heads_per_kv = (int)tiles.heads_per_kv,
                                   .key_rows = config->tile_n,
                                   .parts = SM90_HAS_PARTS(config->packed, consumers, config->tile_n) ? consumers : 0,
                                   .takes_words = as_fits(variant, config, sm90_keep_bytes(config)) > 0,
                                   .takes_order = true,
                                   .awaits_each = !config->split,
                                   .batch = (uint32_t)problem->batch};
}

static uint32_t variant_shared(const struct attention_variant_launch *variant, const int32_t *values) {
  const kjit_attention_sm90_config *config = sm90_config_view(values);
  if (SM90_PAIRS(config->consumers) > 1) return 0; /* each pair's part of the block's memory has it all */
  const uint32_t rows = variant->is_listed ? sm90_keep_bytes(config) : sm90_bounds_bytes(config);
  return sm90_variant_bytes(config) + terms_bytes(variant, config) + as_fits(variant, config, rows);
}

const struct attention_family sm90_attention = {.family = &sm90_family,
                                                .arch = HOPPER_ARCH,
                                                .choose = choose,
                                                .settle = settle,
                                                .suit = suit,
                                                .fit = fit,
                                                .count_parts = count_parts,
                                                .front = front,
                                                .pays_front = pays_front,
                                                .prepare = prepare,
                                                .enqueue = enqueue,
                                                .tiling = tiling,
                                                .variant_shared = variant_shared};
