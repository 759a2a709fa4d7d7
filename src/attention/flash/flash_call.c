/* One call of flash_forward.
 *
 * The arguments were checked, the config was fitted to them and its kernel found; what is left is the kernel's argument
 * struct and the grid. A launch is then one driver call, or several where there are more heads or batch entries than a
 * grid has blocks in y and z: each computes a range of them, whose tensors begin further on in memory.
 *
 * Threads: a call is its caller's own; once prepared it is only read. */
#include "attention/flash/flash_call.h"

#include <stdbool.h>

#include "attention/attention_arguments.h"
#include "attention/attention_variant_launch.h"
#include "attention/flash/flash_choose.h"
#include "attention/flash/flash_family.h"
#include "attention/rule.h"
#include "attention/tensor_check.h"
#include "base/integer.h"
#include "runtime/runtime_internal.h"

enum axis { BATCH, SEQ, HEADS };
enum lse_axis { LSE_BATCH, LSE_HEADS };

enum { ELEMENT_BYTES = 2 };

static kjit_status choose(const kjit_attention_problem *problem, const struct family_place *place, int32_t *values,
                          kjit_error *error) {
  return flash_choose(problem, place, (struct flash_variant *)values, error);
}

static void suit(const kjit_attention_problem *problem, const struct attention_variant_launch *variant,
                 int32_t *values) {
  (void)problem;
  if (variant->source.has_score) flash_suit_score((struct flash_variant *)values, variant->gathered);
}

static kjit_status fit(const kjit_attention_problem *problem, int32_t *values, kjit_error *error) {
  return flash_fit(problem, (struct flash_variant *)values, error);
}

static struct flash_forward_strides strides_of(const kjit_tensor *tensor) {
  return (struct flash_forward_strides){
      .batch = tensor_stride(tensor, BATCH), .seq = tensor_stride(tensor, SEQ), .head = tensor_stride(tensor, HEADS)};
}

/* Fill in the kernel's argument struct from the caller's tensors. */
static void fill(const kjit_attention_args *args, const kjit_attention_problem *problem,
                 struct flash_forward_params *params) {
  const struct attention_scale scale = attention_arguments_scale(args->scale, problem->head_dim);
  const bool lse = args->lse.data != NULL;
  *params = (struct flash_forward_params){
      .q = args->q.data,
      .k = args->k.data,
      .v = args->v.data,
      .o = args->o.data,
      .lse = args->lse.data,
      .q_stride = strides_of(&args->q),
      .k_stride = strides_of(&args->k),
      .v_stride = strides_of(&args->v),
      .o_stride = strides_of(&args->o),
      .lse_batch_stride = lse ? tensor_stride(&args->lse, LSE_BATCH) : 0,
      .lse_head_stride = lse ? tensor_stride(&args->lse, LSE_HEADS) : 0,
      .seq_q = (int)problem->seq_q,
      .seq_kv = (int)problem->seq_kv,
      .scale = scale.scale,
      .scale_log2 = scale.scale_log2,
      .heads_per_kv = (int)(problem->heads_q / problem->heads_kv),
  };
}

static kjit_status prepare(void *user, kjit_runtime *runtime, const struct attention_launch *launch,
                           const kjit_attention_args *args, const kjit_attention_problem *problem,
                           const kjit_device_info *device, kjit_error *error) {
  struct flash_call *call = user;
  const struct flash_variant *variant = flash_variant_view(launch->values);
  (void)runtime, (void)device;
  if (launch->variant) {
    const kjit_status status = rule_check_grid(problem->batch, problem->heads_q, "flash_forward with a variant", error);
    if (status != KJIT_OK) return status;
  }
  call->kernel = launch->kernel;
  call->grid[0] = (uint32_t)integer_divide_up(problem->seq_q, variant->config.B_r);
  call->grid[1] = (uint32_t)problem->heads_q;
  call->grid[2] = (uint32_t)problem->batch;
  fill(args, problem, &call->params.base);
  if (launch->variant)
    attention_variant_fill(launch->variant, &call->params.base.scale, &call->params.base.scale_log2,
                           &call->params.variant);
  return KJIT_OK;
}

static kjit_status enqueue_params(const struct flash_call *call, const uint32_t grid[3], const void *params,
                                  CUstream stream, kjit_error *error) {
  const kjit_geometry *geometry = &call->kernel->geometry;
  return runtime_kernel_enqueue(call->kernel->kernel, grid, geometry->threads, geometry->shared_bytes, params, stream,
                                error);
}

/* The address of an element of a 16-bit tensor. */
static void *element(const void *tensor, const struct flash_forward_strides *stride, int64_t batch, int64_t head) {
  return (char *)(uintptr_t)tensor + (batch * stride->batch + head * stride->head) * ELEMENT_BYTES;
}

/* Launch for the heads and batch entries of `grid`, the first of which are `head` and `batch`. Query heads that share a
 * key head are counted from a key head's first, or lie all within one key head. */
static kjit_status enqueue_range(const struct flash_call *call, const uint32_t grid[3], int64_t batch, int64_t head,
                                 CUstream stream, kjit_error *error) {
  const struct flash_forward_params *all = &call->params.base;
  struct flash_forward_params params = *all;
  const int64_t key_head = head / all->heads_per_kv;
  params.q = element(all->q, &all->q_stride, batch, head);
  params.o = element(all->o, &all->o_stride, batch, head);
  params.k = element(all->k, &all->k_stride, batch, key_head);
  params.v = element(all->v, &all->v_stride, batch, key_head);
  if (all->lse) params.lse = all->lse + batch * all->lse_batch_stride + head * all->lse_head_stride;
  return enqueue_params(call, grid, &params, stream, error);
}

/* How many heads from `head` on one launch takes: whole groups of those that share a key head, or a part of one group
 * that is larger than a grid. */
static int64_t heads_of_launch(int64_t head, int64_t heads, int64_t group) {
  if (group <= RULE_GRID_YZ_MAX) return integer_min(heads - head, RULE_GRID_YZ_MAX / group * group);
  return integer_min(group - head % group, RULE_GRID_YZ_MAX);
}

static kjit_status enqueue_ranges(const struct flash_call *call, CUstream stream, kjit_error *error) {
  const int64_t heads = call->grid[1], entries = call->grid[2], group = call->params.base.heads_per_kv;
  kjit_status status = KJIT_OK;
  for (int64_t batch = 0; batch < entries; batch += RULE_GRID_YZ_MAX) {
    for (int64_t head = 0; head < heads && status == KJIT_OK; head += heads_of_launch(head, heads, group)) {
      const uint32_t grid[3] = {call->grid[0], (uint32_t)heads_of_launch(head, heads, group),
                                (uint32_t)integer_min(entries - batch, RULE_GRID_YZ_MAX)};
      status = enqueue_range(call, grid, batch, head, stream, error);
    }
  }
  return status;
}

static kjit_status enqueue(const void *user, const struct attention_variant_blocks *blocks, CUstream stream,
                           kjit_error *error) {
  const struct flash_call *call = user;
  if (call->grid[1] > RULE_GRID_YZ_MAX || call->grid[2] > RULE_GRID_YZ_MAX) return enqueue_ranges(call, stream, error);
  if (!blocks) return enqueue_params(call, call->grid, &call->params.base, stream, error);
  struct flash_forward_variant_params params = call->params;
  params.variant.lists = blocks->lists;
  params.variant.map.states = blocks->states;
  return enqueue_params(call, call->grid, &params, stream, error);
}

static void tiling(const kjit_attention_problem *problem, const struct attention_variant_launch *variant,
                   const int32_t *values, struct attention_tiling *out) {
  (void)variant;
  const kjit_flash_config *config = &flash_variant_view(values)->config;
  *out = (struct attention_tiling){.query_tiles = (int)integer_divide_up(problem->seq_q, config->B_r),
                                   .tile_queries = config->B_r,
                                   .heads = (int)problem->heads_q,
                                   .packed = 1,
                                   .heads_per_kv = (int)(problem->heads_q / problem->heads_kv),
                                   .key_rows = config->B_c,
                                   .batch = (uint32_t)problem->batch};
}

const struct attention_family flash_attention = {.family = &flash_forward_family,
                                                 .choose = choose,
                                                 .suit = suit,
                                                 .fit = fit,
                                                 .prepare = prepare,
                                                 .enqueue = enqueue,
                                                 .tiling = tiling};
