/* From a call's arguments to its variant: see attention_variant_call.h.
 *
 * 1. A variant of the caller's stands alone: the plain members must be zero beside it. Its tensors are checked.
 * 2. The plain members become a variant that the library keeps for what is present (attention/variant/variant.h), so
 *    that another window, cap or chunk is another number and not another kernel.
 * 3. The causal flag stays the config's: kernels cut a row's keys by it, whatever the mask says.
 *
 * Threads: pure, but for the library's own variants, which are made once. */
#include "attention/attention_variant_call.h"

#include <math.h>
#include <stdbool.h>

#include "attention/variant/variant.h"
#include "base/error.h"
#include "base/integer.h"

enum axis { BATCH, SEQ, HEADS };

/* Scalars and tensors of the library's own variants. */
enum { BUILTIN_SCALARS = 4, BUILTIN_TENSORS = 2 };

static bool has_window(const kjit_attention_args *args) {
  return (args->flags & KJIT_ATTENTION_WINDOW) != 0;
}

static kjit_status check_numbers(const kjit_attention_args *args, kjit_error *error) {
  if (has_window(args) && (args->window_left < -1 || args->window_right < -1))
    return error_set(error, KJIT_ERR_INVALID_ARG, "window_left is %d and window_right %d: must be at least 0, or -1",
                     (int)args->window_left, (int)args->window_right);
  if (args->attention_chunk < 0)
    return error_set(error, KJIT_ERR_INVALID_ARG, "attention_chunk is %d: must be at least 1, or 0",
                     (int)args->attention_chunk);
  /* The comparison is written so that a NaN fails. */
  if (args->softcap >= 0 && isfinite(args->softcap)) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_ARG, "softcap is %g: must be positive and finite, or 0",
                   (double)args->softcap);
}

static kjit_status check_alone(const kjit_attention_args *args, kjit_error *error) {
  if (!args->alibi_slopes && !args->bias && !has_window(args) && args->attention_chunk == 0 && args->softcap == 0)
    return KJIT_OK;
  return error_invalid(error, "args.variant",
                       "window, attention_chunk, softcap, alibi_slopes and bias must not be set beside it: write them "
                       "in its text");
}

static kjit_status check_alibi(const kjit_attention_args *args, kjit_error *error) {
  const kjit_tensor *slopes = args->alibi_slopes;
  const bool by_batch = slopes->rank == 2;
  if (slopes->rank != 1 && slopes->rank != 2)
    return error_set(error, KJIT_ERR_INVALID_ARG, "alibi_slopes.rank is %u: must be 1 or 2", (unsigned)slopes->rank);
  if (slopes->dtype != KJIT_FP32)
    return error_set(error, KJIT_ERR_INVALID_ARG, "alibi_slopes.dtype is %d: must be FP32 (6)", (int)slopes->dtype);
  if (slopes->shape[by_batch] != args->q.shape[HEADS] || (by_batch && slopes->shape[0] != args->q.shape[BATCH]))
    return error_set(error, KJIT_ERR_INVALID_ARG, "alibi_slopes.shape must be (heads) or (batch, heads): %lld heads",
                     (long long)args->q.shape[HEADS]);
  return KJIT_OK;
}

static kjit_status check_bias(const kjit_attention_args *args, kjit_error *error) {
  const kjit_tensor *bias = args->bias;
  const int64_t wanted[] = {args->q.shape[BATCH], args->q.shape[HEADS], args->q.shape[SEQ], args->k.shape[SEQ]};
  if (bias->rank != 4)
    return error_set(error, KJIT_ERR_INVALID_ARG, "bias.rank is %u: must be 4", (unsigned)bias->rank);
  if (bias->dtype != KJIT_FP32 && bias->dtype != KJIT_FP16 && bias->dtype != KJIT_BF16)
    return error_set(error, KJIT_ERR_INVALID_ARG, "bias.dtype is %d: must be FP16 (5), FP32 (6) or BF16 (15)",
                     (int)bias->dtype);
  for (int axis = 0; axis < 4; axis++) {
    if (bias->shape[axis] != 1 && bias->shape[axis] != wanted[axis])
      return error_set(error, KJIT_ERR_INVALID_ARG, "bias.shape[%d] is %lld: must be 1 or %lld", axis,
                       (long long)bias->shape[axis], (long long)wanted[axis]);
  }
  return KJIT_OK;
}

static struct variant_builtin_members members_of(const kjit_attention_args *args) {
  return (struct variant_builtin_members){
      .has_window_left = has_window(args) && args->window_left >= 0,
      .has_window_right = has_window(args) && args->window_right >= 0,
      .has_chunk = args->attention_chunk > 0,
      .has_softcap = args->softcap > 0,
      .alibi_rank = args->alibi_slopes ? args->alibi_slopes->rank : 0,
      .alibi_dtype = args->alibi_slopes ? args->alibi_slopes->dtype : 0,
      .alibi_is_behind = (args->flags & KJIT_ATTENTION_CAUSAL) != 0,
      .has_bias = args->bias != NULL,
      .bias_dtype = args->bias ? args->bias->dtype : 0,
  };
}

/* What a variant is read with. */
struct readings {
  const kjit_attention_variant *variant;
  const int32_t *scalars;
  const kjit_tensor *tensors;
  int32_t own_scalars[BUILTIN_SCALARS];
  kjit_tensor own_tensors[BUILTIN_TENSORS];
};

static kjit_status read_members(const kjit_attention_args *args, struct readings *readings, kjit_error *error) {
  const struct variant_builtin_members members = members_of(args);
  const struct variant_builtin_values values = {.window_left = args->window_left,
                                                .window_right = args->window_right,
                                                .chunk = args->attention_chunk,
                                                .softcap = args->softcap,
                                                .alibi = args->alibi_slopes,
                                                .bias = args->bias};
  kjit_status status = check_numbers(args, error);
  if (status == KJIT_OK && args->alibi_slopes) status = check_alibi(args, error);
  if (status == KJIT_OK && args->bias) status = check_bias(args, error);
  if (status == KJIT_OK) status = attention_variant_builtin(&readings->variant, &members, error);
  if (status != KJIT_OK || !readings->variant) return status;
  attention_variant_builtin_values(&members, &values, readings->own_scalars, readings->own_tensors);
  readings->scalars = readings->own_scalars;
  readings->tensors = readings->own_tensors;
  return KJIT_OK;
}

/* The variant of the arguments, or NULL in readings->variant where it changes nothing. */
static kjit_status read_variant(const kjit_attention_args *args, struct readings *readings, kjit_error *error) {
  if (!args->variant) return read_members(args, readings, error);
  readings->variant = args->variant;
  readings->scalars = args->scalar_values;
  readings->tensors = args->variant_tensors;
  return check_alone(args, error);
}

/* Some interval begins by the query's place, and none that has no beginning ends by it. */
static bool is_narrow(const kjit_attention_variant *variant) {
  const struct variant_node *const nodes = variant->tree.nodes;
  bool narrow = false;
  for (size_t i = 0; i < variant->intervals.count; i++) {
    const struct variant_interval *const piece = &variant->intervals.pieces[i];
    if (nodes[piece->lo].uses & USES_Q)
      narrow = true;
    else if (nodes[piece->hi].uses & USES_Q)
      return false;
  }
  return narrow;
}

/* Neighbouring queries' keys begin at the same place, which the mask divides or loads: those of chunks and documents. A
 * window's begin later for each. */
static bool is_stepped(const kjit_attention_variant *variant) {
  if (!is_narrow(variant)) return false;
  for (size_t i = 0; i < variant->tree.count; i++) {
    const struct variant_node *const node = &variant->tree.nodes[i];
    const bool is_step = node->operation == VARIANT_integer_divide || node->operation == VARIANT_LOAD;
    if (is_step && node->uses & USES_Q && !(node->uses & USES_K)) return true;
  }
  return false;
}

static int count_key_loads(const struct variant_program *score) {
  int count = 0;
  for (size_t i = 0; i < score->count; i++)
    count += score->nodes[i].operation == VARIANT_LOAD && (score->nodes[i].uses & USES_K) != 0;
  return count;
}

static struct attention_variant_source source_of(const kjit_attention_variant *variant) {
  const bool has_mask = variant->mask != VARIANT_NONE;
  const int tile_axes = variant->class.tile ? variant->tree.tensor_ranks[variant->class.tile - 1] : 0;
  const unsigned uses = has_mask ? variant->tree.nodes[variant->mask].uses : 0;
  return (struct attention_variant_source){.header = variant->header,
                                           .digest = variant->digest,
                                           .has_score = !variant->class.is_identity,
                                           .has_mask = has_mask,
                                           .intervals = (int)variant->intervals.count,
                                           .is_narrow = is_narrow(variant),
                                           .is_stepped = is_stepped(variant),
                                           .is_curved =
                                               variant->class.core != 0 && variant->class.core != VARIANT_real_tanh,
                                           .key_loads = count_key_loads(&variant->programs.score),
                                           .tile = variant->class.tile,
                                           .tile_axes = tile_axes,
                                           .tile_rows = variant->class.tile_rows,
                                           .by_batch = (uses & USES_B) != 0,
                                           .by_head = (uses & USES_H) != 0};
}

kjit_status attention_variant_of_args(struct attention_variant_launch *launch, const kjit_attention_args *args,
                                      int32_t device, kjit_error *error) {
  struct readings readings = {0};
  struct kjit_variant_arguments arguments = {0};
  const struct variant_problem problem = {(int32_t)args->q.shape[SEQ], (int32_t)args->k.shape[SEQ],
                                          (int32_t)args->q.shape[HEADS], (int32_t)args->k.shape[HEADS]};
  kjit_status status = read_variant(args, &readings, error);
  if (status == KJIT_OK && readings.variant)
    status = variant_check_tensors(readings.variant, readings.scalars, readings.tensors, device, error);
  if (status != KJIT_OK) return status;
  if (!readings.variant) {
    arguments.seq_q = problem.seq_q;
    arguments.seq_kv = problem.seq_kv;
    arguments.heads_q = problem.heads_q;
    arguments.heads_kv = problem.heads_kv;
    return attention_variant_take(launch, args, &attention_variant_none, &arguments, error);
  }
  const struct attention_variant_source source = source_of(readings.variant);
  variant_fill_arguments(readings.variant, &problem, readings.scalars, readings.tensors, &arguments);
  return attention_variant_take(launch, args, &source, &arguments, error);
}

int64_t attention_variant_seen_keys(const kjit_attention_args *args) {
  const int64_t seq_kv = args->k.shape[SEQ];
  const bool causal = (args->flags & KJIT_ATTENTION_CAUSAL) != 0;
  int64_t seen = seq_kv;
  if (has_window(args) && args->window_left >= 0 && (causal || args->window_right >= 0))
    seen = integer_min(seen, (int64_t)args->window_left + 1 + (causal ? 0 : args->window_right));
  if (args->attention_chunk > 0) seen = integer_min(seen, args->attention_chunk);
  return seen < seq_kv ? seen : 0;
}
