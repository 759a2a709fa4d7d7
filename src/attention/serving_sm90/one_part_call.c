/* One call of attention by the kernel with one_part. The arguments were checked, the config was fitted to them and its
 * kernel found. What is left:
 *
 * 1. the kernel's argument struct, as a serving call without lengths and page table has it, and the tensor maps of K
 *    and V, encoded once for the same tensors (serving_sm90_argument.c);
 * 2. at each launch, the memory that belongs to a stream: partial results of tiles that are divided.
 *
 * Threads: a call belongs to its caller and is only read once it is prepared. Maps and workspace are shared by all
 * threads, each as its own header says. */
#include "attention/serving_sm90/one_part_call.h"

#include <stddef.h>
#include <string.h>

#include "attention/attention_arguments.h"
#include "attention/rule.h"
#include "attention/serving/serving_arguments.h"
#include "attention/serving_sm90/one_part_choose.h"
#include "attention/serving_sm90/serving_sm90_serving.h"
#include "attention/stream_workspace.h"
#include "attention/tensor_check.h"
#include "base/error.h"
#include "runtime/runtime_internal.h"

enum lse_axis { LSE_BATCH, LSE_HEADS };

/* What the kernel reads of its argument where nothing is appended. */
#define READ_BYTES offsetof(struct attention_serving_one_part_params, all)

_Static_assert(offsetof(struct one_part_call, params) + READ_BYTES <= ATTENTION_DENSE_CALL_BYTES,
               "a dense launch reads no more");

static void *create_workspace(kjit_runtime *runtime) {
  return stream_workspace_create(runtime);
}

static void destroy_workspace(kjit_runtime *runtime, void *workspace) {
  (void)runtime;
  stream_workspace_destroy(workspace);
}

static const struct runtime_slot slot = {create_workspace, destroy_workspace};

/* ---- What the planner and the calls ask ---- */

static kjit_status choose(const kjit_attention_problem *problem, const struct family_place *place, int32_t *values,
                          kjit_error *error) {
  return one_part_choose(problem, place, (struct serving_sm90_config *)values, error);
}

static kjit_status fit(const kjit_attention_problem *problem, int32_t *values, kjit_error *error) {
  const struct serving_sm90_config *config = serving_sm90_view(values);
  const char *const what = "value for tensors without a page table";
  const struct attention_traits traits = {config->dtype, config->head_dim, config->head_dim_v, ATTENTION_ANY};
  kjit_status status = attention_arguments_match(problem, &traits, error);
  if (status == KJIT_OK) status = rule_check_equal("cache", config->cache, problem->dtype, "tensors' dtype", error);
  if (status == KJIT_OK) status = rule_check_equal("softcap", config->softcap, 0, what, error);
  if (status == KJIT_OK) status = rule_check_equal("one_part", config->one_part, 1, what, error);
  if (status == KJIT_OK) status = rule_check_equal("gathered", config->gathered, 0, what, error);
  if (status == KJIT_OK) status = rule_check_equal("runs", config->runs, 0, what, error);
  return status == KJIT_OK ? one_part_check_problem(problem, error) : status;
}

static uint32_t count_parts(const kjit_attention_problem *problem, const int32_t *values,
                            const struct family_place *place) {
  const struct one_part_tiles tiles = one_part_tiles_of(problem, serving_sm90_view(values), place->sm_count);
  return (uint32_t)(tiles.count * tiles.parts);
}

/* ---- Preparing ---- */

/* The call as one of serving: every sequence has all keys of its row of the cache. A row that stands at the last key
 * sees all of them. */
static struct attention_serving_params serving_params_of(const kjit_attention_args *args,
                                                         const kjit_attention_problem *problem, uint32_t blocks) {
  const bool is_causal = problem->flags & KJIT_ATTENTION_CAUSAL && problem->seq_q > 1;
  return (struct attention_serving_params){
      .q = args->q.data,
      .k = args->k.data,
      .v = args->v.data,
      .o = args->o.data,
      .lse = args->lse.data,
      .q_stride = serving_strides_of(&args->q),
      .k_stride = serving_strides_of(&args->k),
      .v_stride = serving_strides_of(&args->v),
      .o_stride = serving_strides_of(&args->o),
      .lse_batch_stride = args->lse.data ? tensor_stride(&args->lse, LSE_BATCH) : 0,
      .lse_head_stride = args->lse.data ? tensor_stride(&args->lse, LSE_HEADS) : 0,
      .batch = (int)problem->batch,
      .heads_kv = (int)problem->heads_kv,
      .group = (int)(problem->heads_q / problem->heads_kv),
      .rows_q = (int)problem->seq_q,
      .rows_k = (int)problem->seq_kv,
      .cache_rows = (int)problem->batch,
      .page_shift = -1,
      .window_left = -1,
      .window_right = is_causal ? 0 : -1,
      .scale_log2 = attention_arguments_scale(args->scale, problem->head_dim).scale_log2,
      .runs = (int)blocks};
}

/* Bytes of a part's result: as one_part_result.cuh lays it out, for the rows that exist in the largest tile. */
static size_t partial_bytes_of(const kjit_attention_problem *problem, const struct serving_sm90_config *config) {
  const int64_t packed = problem->seq_q * (problem->heads_q / problem->heads_kv);
  const size_t rows = (size_t)(packed < config->rows ? packed : config->rows);
  return (rows * (size_t)config->head_dim_v + (rows + 1) / 2 * 4) * sizeof(float);
}

static kjit_status prepare(void *user, kjit_runtime *runtime, const struct attention_launch *launch,
                           const kjit_attention_args *args, const kjit_attention_problem *problem,
                           const kjit_device_info *device, kjit_error *error) {
  struct one_part_call *call = user;
  const struct serving_sm90_config *config = serving_sm90_view(launch->values);
  const struct attention_serving_params serving = serving_params_of(args, problem, launch->parts);
  (void)device;
  struct stream_workspace *const workspace = runtime_slot_get(runtime, &slot);
  if (!workspace) return error_no_memory(error);
  const kjit_status status =
      serving_sm90_encode(runtime, launch->values, &serving, &call->params, launch->is_again, error);
  if (status != KJIT_OK) return status;
  call->kernel = launch->kernel;
  call->tiles = (uint32_t)(call->params.tiles * call->params.batch);
  call->parts = (uint32_t)call->params.runs_of_tile;
  call->workspace = call->parts > 1 ? workspace : NULL;
  call->partial_bytes = launch->parts * partial_bytes_of(problem, config);
  call->arrivals = (size_t)launch->parts * SERVING_SM90_MERGE_COUNTERS;
  return KJIT_OK;
}

/* ---- Launching ---- */

static kjit_status enqueue_parts(const struct one_part_call *call, uint32_t parts, const struct stream_space *space,
                                 CUstream stream, kjit_error *error) {
  const kjit_geometry *geometry = &call->kernel->geometry;
  const uint32_t grid[3] = {call->tiles * parts, 1, 1};
  struct attention_serving_one_part_params params;
  memcpy(&params, &call->params, READ_BYTES);
  memset(&params.all, 0, sizeof params.all); /* never read, but the driver copies all of the argument */
  params.runs_of_tile = (int)parts;
  params.partials = space->partials;
  params.arrivals = space->arrivals;
  return runtime_kernel_enqueue(call->kernel->kernel, grid, geometry->threads, geometry->shared_bytes, &params, stream,
                                error);
}

/* Without memory for partial results every tile is one part. */
static kjit_status enqueue(const void *user, const struct attention_variant_blocks *blocks, CUstream stream,
                           kjit_error *error) {
  const struct one_part_call *call = user;
  struct stream_space space = {0};
  (void)blocks; /* the family computes no variants */
  if (!call->workspace || !stream_workspace_get(call->workspace, call->partial_bytes, call->arrivals, stream, &space))
    return enqueue_parts(call, 1, &space, stream, error);
  const kjit_status status = enqueue_parts(call, call->parts, &space, stream, error);
  stream_workspace_put(call->workspace, &space, stream);
  return status;
}

const struct attention_family one_part_attention = {.family = &serving_sm90_family,
                                                    .arch = HOPPER_ARCH,
                                                    .is_special = true,
                                                    .choose = choose,
                                                    .fit = fit,
                                                    .count_parts = count_parts,
                                                    .prepare = prepare,
                                                    .enqueue = enqueue};
