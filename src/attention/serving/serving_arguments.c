/* What a serving caller asks for, checked: tensors, as serving_views.h has them, then what goes with what, then
 * numbers.
 *
 * Threads: everything here is pure. */
#include "attention/serving/serving_arguments.h"

#include <math.h>

#include "attention/serving/serving_views.h"
#include "attention/tensor_check.h"
#include "base/error.h"

/* The most sequences, and the most query heads of a group. */
#define MAX_BATCH (1 << 24)
#define MAX_HEADS 65535

static const char *const axes[] = {"batch", "seq", "heads", "head_dim"};
static const char *const lse_axes[] = {"batch", "heads", "seq"};

#define RULE(name, bytes, written)                                                                                     \
  { name, axes, 4, bytes, 16 / (bytes), 16, written, 0 }
static const struct tensor_rule q_rule = RULE("q", 2, false), o_rule = RULE("o", 2, true),
                                k_new_rule = RULE("k_new", 2, false), v_new_rule = RULE("v_new", 2, false);
/* Rules of the cache's tensors: the first index is 1 for elements of one byte, the second 1 where they are written. */
static const struct tensor_rule k_rules[2][2] = {{RULE("k", 2, false), RULE("k", 2, true)},
                                                 {RULE("k", 1, false), RULE("k", 1, true)}};
static const struct tensor_rule v_rules[2][2] = {{RULE("v", 2, false), RULE("v", 2, true)},
                                                 {RULE("v", 1, false), RULE("v", 1, true)}};
/* Looked at with a third axis of length 1, so that their last stride is free. */
static const char *const descale_axes[] = {"batch", "heads", "1"};
static const struct tensor_rule k_descale_rule = {"k_descale", descale_axes, 3, 4, 1, 4, false, 0},
                                v_descale_rule = {"v_descale", descale_axes, 3, 4, 1, 4, false, 0};
static const struct tensor_rule lse_rule = {"lse", lse_axes, 3, 4, 1, 4, true, 0};

/* A tensor with its rule, as a tensor of four axes. */
struct operand {
  const struct tensor_rule *rule;
  kjit_tensor tensor;
};

static void list_operands(const kjit_attention_serving_args *args, struct operand operands[OPERANDS]) {
  const bool appends = args->k_new.data != NULL, narrow = serving_is_narrow(args);
  const struct tensor_rule *const rules[] = {
      &q_rule, &k_rules[narrow][appends], &v_rules[narrow][appends], &o_rule, &k_new_rule, &v_new_rule};
  for (int i = Q; i <= V_NEW; i++)
    operands[i] = (struct operand){rules[i], serving_view_of(args, i)};
  operands[LSE] = (struct operand){&lse_rule, serving_lse_view(args)};
  operands[K_DESCALE] = (struct operand){&k_descale_rule, serving_descale_view(&args->k_descale)};
  operands[V_DESCALE] = (struct operand){&v_descale_rule, serving_descale_view(&args->v_descale)};
}

/* A tensor that takes part: without keys at all, k and v do not. */
static bool takes_part(const struct operand operands[OPERANDS], int operand) {
  if (operand >= K_NEW) return operands[operand].tensor.data != NULL;
  if (operand != K && operand != V) return true;
  return operands[K].tensor.shape[OUTER] != 0 && operands[K].tensor.shape[SEQ] != 0;
}

bool serving_arguments_are_empty(const kjit_attention_serving_args *args) {
  if (args->batch == 0) return true;
  for (uint32_t axis = 0; axis < args->q.rank && axis < 4; axis++)
    if (args->q.shape[axis] == 0) return true;
  return false;
}

static kjit_status check_dtype(const char *name, int32_t dtype, int32_t wanted, kjit_error *error) {
  if (dtype == wanted) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_ARG, "%s.dtype is %d: must be %s (%d)", name, (int)dtype,
                   wanted == KJIT_FP32       ? "FP32"
                   : wanted == KJIT_FP8_E4M3 ? "k's"
                                             : "q's",
                   (int)wanted);
}

static int32_t dtype_of(const struct operand operands[OPERANDS], int operand) {
  const bool narrow = operands[K].tensor.dtype == KJIT_FP8_E4M3;
  if (operand >= LSE) return KJIT_FP32;
  return narrow && (operand == K || operand == V) ? KJIT_FP8_E4M3 : operands[Q].tensor.dtype;
}

/* What an 8-bit cache asks for beside its dtype, and what it alone may have. */
static kjit_status check_narrow(const kjit_attention_serving_args *args, const struct operand operands[OPERANDS],
                                kjit_error *error) {
  if (!serving_is_narrow(args)) {
    if (!args->k_descale.data && !args->v_descale.data) return KJIT_OK;
    return error_invalid(error, args->k_descale.data ? "k_descale" : "v_descale",
                         "must be without data unless k is FP8_E4M3");
  }
  for (int i = K; i <= V; i++) {
    const int64_t columns = operands[i].tensor.shape[COLUMNS];
    if (columns % 16 == 0) continue;
    return error_set(error, KJIT_ERR_INVALID_ARG,
                     "%s.shape[3] (head_dim) is %lld: must be a multiple of 16 in FP8_E4M3", operands[i].rule->name,
                     (long long)columns);
  }
  kjit_status status = KJIT_OK;
  for (int i = K_DESCALE; i <= V_DESCALE && status == KJIT_OK; i++) {
    const struct operand *operand = &operands[i];
    if (!operand->tensor.data) continue;
    status = tensor_check_length(operand->rule, &operand->tensor, 0, args->batch, "args", error);
    if (status == KJIT_OK)
      status = tensor_check_length(operand->rule, &operand->tensor, 1, operands[K].tensor.shape[HEADS], "k", error);
  }
  return status;
}

static kjit_status check_tensors(const struct operand operands[OPERANDS], int32_t device, kjit_error *error) {
  const int32_t dtype = operands[Q].tensor.dtype;
  kjit_status status = KJIT_OK;
  if (dtype != KJIT_FP16 && dtype != KJIT_BF16)
    return error_set(error, KJIT_ERR_INVALID_ARG, "q.dtype is %d: must be FP16 (5) or BF16 (15)", (int)dtype);
  for (int i = Q; i < OPERANDS && status == KJIT_OK; i++) {
    const struct operand *operand = &operands[i];
    if (!takes_part(operands, i)) continue;
    status = tensor_check_place(operand->rule, &operand->tensor, device, error);
    if (status == KJIT_OK)
      status = check_dtype(operand->rule->name, operand->tensor.dtype, dtype_of(operands, i), error);
    if (status == KJIT_OK) status = tensor_check_shape(operand->rule, &operand->tensor, error);
    if (status == KJIT_OK) status = tensor_check_layout(operand->rule, &operand->tensor, error);
  }
  return status;
}

/* Axes that must be equally long: of an operand, and of one before it. */
static const struct {
  int operand, axis, like;
} equal_axes[] = {{O, OUTER, Q},     {O, SEQ, Q},         {O, HEADS, Q},         {K, COLUMNS, Q},
                  {V, OUTER, K},     {V, SEQ, K},         {V, HEADS, K},         {O, COLUMNS, V},
                  {K_NEW, HEADS, K}, {K_NEW, COLUMNS, K}, {V_NEW, OUTER, K_NEW}, {V_NEW, SEQ, K_NEW},
                  {V_NEW, HEADS, V}, {V_NEW, COLUMNS, V}};

static kjit_status check_equal_axes(const struct operand operands[OPERANDS], kjit_error *error) {
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < sizeof equal_axes / sizeof *equal_axes && status == KJIT_OK; i++) {
    const int operand = equal_axes[i].operand, like = equal_axes[i].like;
    if (!takes_part(operands, operand) || !takes_part(operands, like)) continue;
    status = tensor_check_length(operands[operand].rule, &operands[operand].tensor, (uint32_t)equal_axes[i].axis,
                                 operands[like].tensor.shape[equal_axes[i].axis], operands[like].rule->name, error);
  }
  return status;
}

static kjit_status check_number(const char *name, int64_t value, int64_t least, int64_t most, kjit_error *error) {
  if (value >= least && value <= most) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_ARG, "%s is %lld: must be from %lld to %lld", name, (long long)value,
                   (long long)least, (long long)most);
}

static kjit_status check_batch(const kjit_attention_serving_args *args, const struct operand operands[OPERANDS],
                               kjit_error *error) {
  const kjit_tensor *q = &operands[Q].tensor, *k = &operands[K].tensor, *lse = &operands[LSE].tensor;
  kjit_status status = KJIT_OK;
  if (args->cu_seqlens_q && (args->q.rank != 3 || args->o.rank != 3))
    return error_invalid(error, args->q.rank != 3 ? "q.rank" : "o.rank",
                         "must be 3 with cu_seqlens_q: (total, heads, head_dim)");
  if (!args->cu_seqlens_q && q->shape[OUTER] != args->batch) {
    return error_set(error, KJIT_ERR_INVALID_ARG, "q.shape[0] (batch) is %lld: must be args.batch, %lld",
                     (long long)q->shape[OUTER], (long long)args->batch);
  }
  if (k->shape[HEADS] < 1 || q->shape[HEADS] % k->shape[HEADS] != 0) {
    return error_set(error, KJIT_ERR_INVALID_ARG, "k.shape (heads) is %lld: must divide that of q, %lld",
                     (long long)k->shape[HEADS], (long long)q->shape[HEADS]);
  }
  status = check_number("q.shape (seq)", q->shape[SEQ], 1, SERVING_MAX_LENGTH, error);
  if (status == KJIT_OK) status = check_number("k.shape (seq)", k->shape[SEQ], 0, SERVING_MAX_LENGTH, error);
  if (status == KJIT_OK) status = check_number("k.shape[0]", k->shape[OUTER], 0, SERVING_MAX_LENGTH, error);
  if (status == KJIT_OK) status = check_number("q.shape (heads)", q->shape[HEADS], 1, MAX_HEADS, error);
  if (status != KJIT_OK || !lse->data) return status;
  status = tensor_check_length(&lse_rule, lse, 0, q->shape[OUTER], "q", error);
  if (status == KJIT_OK) status = tensor_check_length(&lse_rule, lse, 1, q->shape[HEADS], "q", error);
  return status == KJIT_OK ? tensor_check_length(&lse_rule, lse, 2, q->shape[SEQ], "q", error) : status;
}

static kjit_status check_cache(const kjit_attention_serving_args *args, const struct operand operands[OPERANDS],
                               kjit_error *error) {
  const kjit_tensor *k = &operands[K].tensor;
  if (args->page_table) {
    if (k->shape[SEQ] < 1) return error_invalid(error, "k.shape (seq)", "a page must have at least one position");
    const int64_t most = SERVING_MAX_LENGTH / k->shape[SEQ];
    kjit_status status = check_number("max_pages", args->max_pages, 1, SERVING_MAX_LENGTH, error);
    if (status == KJIT_OK && args->max_pages > most) {
      return error_set(error, KJIT_ERR_INVALID_ARG,
                       "max_pages is %lld: must be at most %lld with pages of %lld positions, 2^30 in all",
                       (long long)args->max_pages, (long long)most, (long long)k->shape[SEQ]);
    }
    return status == KJIT_OK ? check_number("page_table_stride", args->page_table_stride, 0, INT64_MAX / 8, error)
                             : status;
  }
  if (args->cu_seqlens_k && args->k.rank != 3)
    return error_invalid(error, "k.rank", "must be 3 with cu_seqlens_k: (total, heads, head_dim)");
  if (args->cu_seqlens_k && args->cache_batch_idx)
    return error_invalid(error, "cache_batch_idx", "must be NULL with cu_seqlens_k, whose keys have no batch axis");
  if (args->cu_seqlens_k || args->cache_batch_idx || k->shape[OUTER] == args->batch || k->shape[OUTER] == 0)
    return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_ARG,
                   "k.shape[0] (batch) is %lld: must be args.batch, %lld, without cache_batch_idx",
                   (long long)k->shape[OUTER], (long long)args->batch);
}

static kjit_status check_append(const kjit_attention_serving_args *args, const struct operand operands[OPERANDS],
                                kjit_error *error) {
  const bool appends = args->k_new.data != NULL;
  const kjit_tensor *k_new = &operands[K_NEW].tensor;
  if (appends != (args->v_new.data != NULL)) return error_invalid(error, "v_new", "must be given if k_new is");
  if (!args->rotary_cos != !args->rotary_sin)
    return error_invalid(error, "rotary_sin", "must be given if rotary_cos is");
  if (args->rotary_cos && !appends) return error_invalid(error, "rotary_cos", "must be NULL without k_new");
  if (!appends) return KJIT_OK;
  if (!args->seqused_k) return error_invalid(error, "seqused_k", "must be given with k_new: where keys are appended");
  if (args->cu_seqlens_k && !args->page_table)
    return error_invalid(error, "cu_seqlens_k", "must be NULL with k_new: keys are appended to a cache");
  if (!args->cu_seqlens_k_new && k_new->shape[OUTER] != args->batch) {
    return error_set(error, KJIT_ERR_INVALID_ARG, "k_new.shape[0] (batch) is %lld: must be args.batch, %lld",
                     (long long)k_new->shape[OUTER], (long long)args->batch);
  }
  if (!args->rotary_cos) return KJIT_OK;
  if ((uintptr_t)args->rotary_cos % 16 || (uintptr_t)args->rotary_sin % 16)
    return error_invalid(error, "rotary_cos", "must be a multiple of 16 bytes, as must be rotary_sin");
  if (args->rotary_columns % 16) return error_invalid(error, "rotary_columns", "must be a multiple of 16");
  const kjit_status status =
      check_number("rotary_columns", args->rotary_columns, 16, operands[Q].tensor.shape[COLUMNS], error);
  return status == KJIT_OK ? check_number("rotary_rows", args->rotary_rows, 1, SERVING_MAX_LENGTH, error) : status;
}

static kjit_status check_numbers(const kjit_attention_serving_args *args, kjit_error *error) {
  const struct {
    const char *name;
    int64_t value, least, most;
  } numbers[] = {{"batch", args->batch, 0, MAX_BATCH},
                 {"max_seqlen_q", args->max_seqlen_q, 0, INT64_MAX},
                 {"window_left", args->window_left, -1, INT32_MAX},
                 {"window_right", args->window_right, -1, INT32_MAX},
                 {"attention_chunk", args->attention_chunk, 0, INT32_MAX},
                 {"num_splits", args->num_splits, 0, INT32_MAX},
                 {"sm_margin", args->sm_margin, 0, INT32_MAX}};
  const uint32_t known = KJIT_ATTENTION_CAUSAL | KJIT_SERVING_ROTARY_INTERLEAVED;
  kjit_status status = KJIT_OK;
  if (args->flags & ~known)
    return error_invalid(error, "flags", "only KJIT_ATTENTION_CAUSAL and KJIT_SERVING_* may be set");
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers && status == KJIT_OK; i++)
    status = check_number(numbers[i].name, numbers[i].value, numbers[i].least, numbers[i].most, error);
  if (status != KJIT_OK) return status;
  /* The comparisons are written so that a NaN fails. */
  if (!(args->scale >= 0 && isfinite(args->scale) && isfinite(args->scale * 2)))
    return error_invalid(error, "scale", "must be positive and finite, or 0 for 1/sqrt(head_dim)");
  if (!(args->softcap >= 0 && isfinite(args->softcap)))
    return error_invalid(error, "softcap", "must be finite and not negative");
  if (args->sinks && args->sinks_dtype != KJIT_FP32 && args->sinks_dtype != args->q.dtype)
    return error_invalid(error, "sinks_dtype", "must be KJIT_FP32 or q's dtype");
  return KJIT_OK;
}

kjit_status serving_arguments_check(const kjit_attention_serving_args *args, int32_t device, kjit_error *error) {
  struct operand operands[OPERANDS];
  kjit_status status = check_numbers(args, error);
  if (status != KJIT_OK) return status;
  list_operands(args, operands);
  status = check_tensors(operands, device, error);
  if (status == KJIT_OK) status = check_batch(args, operands, error);
  if (status == KJIT_OK) status = check_equal_axes(operands, error);
  if (status == KJIT_OK) status = check_narrow(args, operands, error);
  if (status == KJIT_OK) status = check_cache(args, operands, error);
  return status == KJIT_OK ? check_append(args, operands, error) : status;
}
