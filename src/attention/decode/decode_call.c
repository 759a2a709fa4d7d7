/* One call of attention_decode_sm90. The arguments were checked, the config was fitted to them and its kernel found.
 * What is left:
 *
 * 1. the tensor maps of K and V, encoded once for the same tensors;
 * 2. the kernel's argument struct;
 * 3. at each launch, the memory that belongs to a stream: partial results of tiles that lie in several runs.
 *
 * Threads: a call belongs to its caller and is only read once it is prepared. Maps and workspace are shared by all
 * threads, each as its own header says. */
#include "attention/decode/decode_call.h"

#include <stdalign.h>
#include <stddef.h>

#include "attention/attention_arguments.h"
#include "attention/decode/decode_choose.h"
#include "attention/decode/decode_own.h"
#include "attention/rule.h"
#include "attention/stream_workspace.h"
#include "attention/tensor_box.h"
#include "attention/tensor_check.h"
#include "base/error.h"
#include "base/integer.h"
#include "base/threads/recent.h"
#include "runtime/runtime_internal.h"

_Static_assert(sizeof(struct decode_tensor_map) == RUNTIME_TENSOR_MAP_BYTES, "the kernel's map is the driver's");
_Static_assert(alignof(struct decode_tensor_map) == RUNTIME_TENSOR_MAP_ALIGNMENT, "the kernel's map is aligned");
_Static_assert(offsetof(struct attention_decode_sm90_params, q) == 2 * RUNTIME_TENSOR_MAP_BYTES, "k, v, then the rest");

enum axis { BATCH, SEQ, HEADS, HEAD_DIM };
enum lse_axis { LSE_BATCH, LSE_HEADS };

#define FLOAT_BYTES 4

/* Everything that the maps depend on. */
struct key {
  struct runtime_tensor tensors[2];
};

/* How many calls are remembered, a power of two: more than a model has layers. 100 KiB. */
#define PLACES 256

/* What the family keeps in a runtime. */
struct state {
  struct recent *maps;
  struct stream_workspace *workspace;
};

_Static_assert(sizeof(struct decode_call) <= ATTENTION_DENSE_CALL_BYTES, "a dense launch reads no more");

static void destroy_state(kjit_runtime *runtime, void *user) {
  struct state *state = user;
  const struct mem *mem = runtime_mem(runtime);
  stream_workspace_destroy(state->workspace);
  recent_destroy(mem, state->maps);
  mem_free(mem, state);
}

static void *create_state(kjit_runtime *runtime) {
  const struct mem *mem = runtime_mem(runtime);
  struct state *state = mem_alloc(mem, sizeof *state);
  if (!state) return NULL;
  state->maps = recent_create(mem, PLACES, sizeof(struct key), 2 * RUNTIME_TENSOR_MAP_BYTES);
  state->workspace = stream_workspace_create(runtime);
  if (state->maps && state->workspace) return state;
  destroy_state(runtime, state);
  return NULL;
}

static const struct runtime_slot slot = {create_state, destroy_state};

/* ---- What the planner and the calls ask ---- */

static kjit_status choose(const kjit_attention_problem *problem, const struct family_place *place, int32_t *values,
                          kjit_error *error) {
  const struct decode_card card = decode_card_of(place);
  return decode_choose(problem, &card, (kjit_attention_decode_sm90_config *)values, error);
}

/* A causal problem with one query sees every key, as one without a mask does, so that either kernel computes it. */
static kjit_status fit(const kjit_attention_problem *problem, int32_t *values, kjit_error *error) {
  const kjit_attention_decode_sm90_config *config = decode_config_view(values);
  const struct attention_traits traits = {config->dtype, config->head_dim, config->head_dim_v,
                                          problem->seq_q == 1 ? ATTENTION_ANY : config->causal};
  const kjit_status status = attention_arguments_match(problem, &traits, error);
  return status == KJIT_OK ? decode_check_problem(problem, error) : status;
}

static uint32_t count_parts(const kjit_attention_problem *problem, const int32_t *values,
                            const struct family_place *place) {
  const struct decode_tiles tiles = decode_tiles_of(problem, decode_config_view(values));
  const struct decode_card card = decode_card_of(place);
  return decode_plan_of(&tiles, decode_config_view(values), &card).runs;
}

/* ---- Tensor maps ---- */

/* L2 fetches up to 128 bytes at a time, a row of a box. With 256 an H200 reads 4.16 instead of 4.46 TB/s, because the
 * other 128 bytes of a row of K or V are those of the next box, which is on its way already. Rows that are no whole
 * lines are fetched so too where neighbouring heads share their lines. */
static struct runtime_tensor describe(const kjit_tensor *tensor, const kjit_attention_decode_sm90_config *config,
                                      bool shares_lines) {
  struct runtime_tensor box = tensor_box_describe(tensor, config->tile_n, KJIT_MAP_PROMOTION_128B);
  if (shares_lines) box.promotion = tensor_box_shared_promotion(tensor, KJIT_MAP_PROMOTION_128B);
  return box;
}

static kjit_status check_strides(const char *name, const kjit_tensor *tensor, kjit_error *error) {
  for (int axis = BATCH; axis <= HEADS; axis++) {
    if (tensor_stride(tensor, (uint32_t)axis) < TENSOR_BOX_STRIDE_LIMIT) continue;
    return error_set(error, KJIT_ERR_UNSUPPORTED,
                     "%s.stride[%d] is %lld: attention_decode_sm90 needs strides below 2^39 elements", name, axis,
                     (long long)tensor->stride[axis]);
  }
  return KJIT_OK;
}

static kjit_status get_maps(struct recent *maps, kjit_runtime *runtime, const kjit_attention_args *args,
                            const kjit_attention_decode_sm90_config *config, bool shares_lines,
                            struct attention_decode_sm90_params *params, bool *is_again, kjit_error *error) {
  const struct key key = {{describe(&args->k, config, shares_lines), describe(&args->v, config, shares_lines)}};
  const bool found = recent_get(maps, &key, params);
  if (is_again) *is_again = found;
  if (found) return KJIT_OK;
  kjit_status status = check_strides("k", &args->k, error);
  if (status == KJIT_OK) status = check_strides("v", &args->v, error);
  if (status == KJIT_OK) status = runtime_tensor_map_encode(runtime, &key.tensors[0], "k", &params->k, error);
  if (status == KJIT_OK) status = runtime_tensor_map_encode(runtime, &key.tensors[1], "v", &params->v, error);
  if (status == KJIT_OK) recent_put(maps, &key, params);
  return status;
}

/* ---- Preparing ---- */

/* Cut the key blocks of all tiles into `runs` runs. */
static void set_runs(int64_t blocks, uint32_t runs, struct attention_decode_sm90_params *params) {
  params->runs = (int)runs;
  params->run_blocks = (int)(blocks / runs);
  params->run_rest = (int)(blocks % runs);
  params->runs_per_block = (float)runs / (float)blocks;
}

static void fill(const kjit_attention_args *args, const kjit_attention_problem *problem,
                 const struct decode_tiles *tiles, struct attention_decode_sm90_params *params) {
  const struct attention_scale scale = attention_arguments_scale(args->scale, problem->head_dim);
  params->q = args->q.data;
  params->o = args->o.data;
  params->lse = args->lse.data;
  params->q_batch_stride = tensor_stride(&args->q, BATCH);
  params->q_seq_stride = tensor_stride(&args->q, SEQ);
  params->q_head_stride = tensor_stride(&args->q, HEADS);
  params->o_batch_stride = tensor_stride(&args->o, BATCH);
  params->o_seq_stride = tensor_stride(&args->o, SEQ);
  params->o_head_stride = tensor_stride(&args->o, HEADS);
  params->lse_batch_stride = args->lse.data ? tensor_stride(&args->lse, LSE_BATCH) : 0;
  params->lse_head_stride = args->lse.data ? tensor_stride(&args->lse, LSE_HEADS) : 0;
  params->heads_kv = (int)problem->heads_kv;
  params->group = (int)(problem->heads_q / problem->heads_kv);
  params->seq_q = (int)problem->seq_q;
  params->seq_kv = (int)problem->seq_kv;
  params->row_tiles = (int)tiles->row_tiles;
  set_runs(tiles->count * tiles->key_blocks, (uint32_t)tiles->count, params);
  params->scale = scale.scale;
  params->scale_log2 = scale.scale_log2;
  params->partials = NULL;
  params->merge_counters = NULL;
}

/* With as many runs as tiles, each run is a tile and nothing is left to merge. */
static void cut(struct decode_call *call, struct state *state, const struct decode_tiles *tiles, uint32_t runs,
                const kjit_attention_decode_sm90_config *config) {
  const size_t partial_floats = (size_t)config->rows * ((size_t)config->head_dim_v + 2);
  call->blocks = tiles->count * tiles->key_blocks;
  call->workspace = NULL;
  if ((int64_t)runs == tiles->count) return;
  call->workspace = state->workspace;
  call->runs = runs;
  call->partial_bytes = 2 * (size_t)runs * partial_floats * FLOAT_BYTES;
  call->arrivals = (size_t)tiles->count * DECODE_MERGE_COUNTERS;
}

static kjit_status prepare(void *user, kjit_runtime *runtime, const struct attention_launch *launch,
                           const kjit_attention_args *args, const kjit_attention_problem *problem,
                           const kjit_device_info *device, kjit_error *error) {
  struct decode_call *call = user;
  const kjit_attention_decode_sm90_config *config = decode_config_view(launch->values);
  struct state *state = runtime_slot_get(runtime, &slot);
  if (!state) return error_no_memory(error);
  const struct decode_tiles tiles = decode_tiles_of(problem, config);
  const bool shares_lines = decode_shares_lines(&tiles, config, launch->parts, device->multiprocessors);
  const kjit_status status =
      get_maps(state->maps, runtime, args, config, shares_lines, &call->params, launch->is_again, error);
  if (status != KJIT_OK) return status;
  call->kernel = launch->kernel;
  fill(args, problem, &tiles, &call->params);
  cut(call, state, &tiles, launch->parts, config);
  return KJIT_OK;
}

/* ---- Launching ---- */

static kjit_status enqueue_params(const struct decode_call *call, const struct attention_decode_sm90_params *params,
                                  CUstream stream, kjit_error *error) {
  const kjit_geometry *geometry = &call->kernel->geometry;
  const uint32_t grid[3] = {(uint32_t)params->runs, 1, 1};
  return runtime_kernel_enqueue(call->kernel->kernel, grid, geometry->threads, geometry->shared_bytes, params, stream,
                                error);
}

/* Without memory for partial results every tile is a run of its own. */
static kjit_status enqueue(const void *user, const struct attention_variant_blocks *blocks, CUstream stream,
                           kjit_error *error) {
  const struct decode_call *call = user;
  struct stream_space space;
  (void)blocks; /* the family computes no variants */
  if (!call->workspace || !stream_workspace_get(call->workspace, call->partial_bytes, call->arrivals, stream, &space))
    return enqueue_params(call, &call->params, stream, error);
  struct attention_decode_sm90_params params = call->params;
  set_runs(call->blocks, call->runs, &params);
  params.partials = space.partials;
  params.merge_counters = space.arrivals;
  const kjit_status status = enqueue_params(call, &params, stream, error);
  stream_workspace_put(call->workspace, &space, stream);
  return status;
}

const struct attention_family decode_attention = {.family = &decode_family,
                                                  .arch = HOPPER_ARCH,
                                                  .is_special = true,
                                                  .choose = choose,
                                                  .fit = fit,
                                                  .count_parts = count_parts,
                                                  .prepare = prepare,
                                                  .enqueue = enqueue};
