/* What a caller asks for, checked: a call's tensors, or a problem without tensors.
 *
 * Arguments are checked in an order in which each rule may rely on those before it: flags, places, shapes, dtypes,
 * equal axes, layouts, the scale. A problem's zeros become their defaults first.
 *
 * Threads: everything here is pure. */
#include "attention/attention_arguments.h"

#include <float.h>
#include <math.h>
#include <stddef.h>

#include "attention/rule.h"
#include "attention/tensor_check.h"
#include "base/error.h"
#include "base/struct_intake.h"
#include "family/field_table.h"

#define LOG2_E 1.4426950408889634

/* Largest scale: multiplied by log2(e) it is still finite. */
#define MAX_SCALE (FLT_MAX / 2)

/* Most entries of the batch, and most heads: kernels count each of them in an int. */
#define MAX_COUNT INT32_MAX

/* Most pairs of (batch, head): what the planners compute with them fits 64 bits. */
#define MAX_PAIRS UINT32_MAX

/* Longest sequence: rounded up to the largest tile, a length still fits int32_t. */
#define MAX_SEQ (INT32_MAX - 255)

enum axis { BATCH, SEQ, HEADS, HEAD_DIM };
enum lse_axis { LSE_BATCH, LSE_HEADS, LSE_SEQ };

static const char *const axes[] = {"batch", "seq", "heads", "head_dim"};
static const char *const lse_axes[] = {"batch", "heads", "seq"};

/* Most tensors of a call: q, k, v, o, and lse when it is wanted. */
#define OPERANDS_MAX 5

struct operand {
  const struct tensor_rule *rule;
  const kjit_tensor *tensor;
};

/* The rule for a 16-bit tensor. Strides and addresses are multiples of 8 elements, because every kernel copies 16 bytes
 * at a time. Any axis but the columns may be empty. */
#define EMPTY_BATCH_SEQ_HEADS (1u << BATCH | 1u << SEQ | 1u << HEADS)
#define RULE(name, written)                                                                                            \
  { name, axes, 4, 2, 8, 16, written, EMPTY_BATCH_SEQ_HEADS }
static const struct tensor_rule q_rule = RULE("q", 0), k_rule = RULE("k", 0), v_rule = RULE("v", 0),
                                o_rule = RULE("o", 1);
static const struct tensor_rule lse_rule = {"lse", lse_axes, 3, 4,
                                            1,     4,        1, 1u << LSE_BATCH | 1u << LSE_HEADS | 1u << LSE_SEQ};

static size_t list_operands(const kjit_attention_args *args, struct operand operands[OPERANDS_MAX]) {
  operands[0] = (struct operand){&q_rule, &args->q};
  operands[1] = (struct operand){&k_rule, &args->k};
  operands[2] = (struct operand){&v_rule, &args->v};
  operands[3] = (struct operand){&o_rule, &args->o};
  operands[4] = (struct operand){&lse_rule, &args->lse};
  return args->lse.data ? 5 : 4;
}

static const char *dtype_name(int32_t dtype) {
  const char *name = field_dtype_name(dtype);
  return name ? name : "no dtype";
}

static kjit_status check_dtype(const char *tensor, int32_t dtype, int32_t wanted, kjit_error *error) {
  if (dtype == wanted) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_ARG, "%s.dtype is %s (%d): must be %s (%d)%s", tensor, dtype_name(dtype),
                   (int)dtype, dtype_name(wanted), (int)wanted, wanted == KJIT_FP32 ? "" : ", as q's");
}

static kjit_status check_dtypes(const kjit_attention_args *args, kjit_error *error) {
  const int32_t dtype = args->q.dtype;
  if (dtype != KJIT_FP16 && dtype != KJIT_BF16) {
    return error_set(error, KJIT_ERR_INVALID_ARG, "q.dtype is %s (%d): must be FP16 (5) or BF16 (15)",
                     dtype_name(dtype), (int)dtype);
  }
  kjit_status status = check_dtype("k", args->k.dtype, dtype, error);
  if (status == KJIT_OK) status = check_dtype("v", args->v.dtype, dtype, error);
  if (status == KJIT_OK) status = check_dtype("o", args->o.dtype, dtype, error);
  if (status != KJIT_OK || !args->lse.data) return status;
  return check_dtype("lse", args->lse.dtype, KJIT_FP32, error);
}

/* Pairs of axes that must be equally long: a tensor's axis and that of a tensor before it. */
static const struct {
  const struct tensor_rule *rule;
  const char *other_name;
  size_t tensor, other; /* where in the arguments they are */
  enum axis axis;
} equal_axes[] = {
#define EQUAL(name, like, axis)                                                                                        \
  { &name##_rule, #like, offsetof(kjit_attention_args, name), offsetof(kjit_attention_args, like), axis }
    EQUAL(k, q, BATCH), EQUAL(k, q, HEAD_DIM), EQUAL(v, q, BATCH), EQUAL(v, k, SEQ),      EQUAL(v, k, HEADS),
    EQUAL(o, q, BATCH), EQUAL(o, q, SEQ),      EQUAL(o, q, HEADS), EQUAL(o, v, HEAD_DIM),
#undef EQUAL
};

static const kjit_tensor *tensor_at(const kjit_attention_args *args, size_t offset) {
  return (const kjit_tensor *)((const char *)args + offset);
}

static kjit_status check_equal_axes(const kjit_attention_args *args, kjit_error *error) {
  for (size_t i = 0; i < sizeof equal_axes / sizeof *equal_axes; i++) {
    const enum axis axis = equal_axes[i].axis;
    const kjit_tensor *tensor = tensor_at(args, equal_axes[i].tensor);
    const int64_t wanted = tensor_at(args, equal_axes[i].other)->shape[axis];
    if (tensor->shape[axis] == wanted) continue; /* here, because this runs on every launch by arguments */
    return tensor_check_length(equal_axes[i].rule, tensor, axis, wanted, equal_axes[i].other_name, error);
  }
  return KJIT_OK;
}

static kjit_status check_heads(const kjit_attention_args *args, kjit_error *error) {
  const int64_t heads_q = args->q.shape[HEADS], heads_kv = args->k.shape[HEADS];
  /* Equal numbers are by far the most common, and need no division. */
  if (heads_q == heads_kv || (heads_kv != 0 && heads_q % heads_kv == 0)) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_ARG, "k.shape[%d] (heads) is %lld: must divide that of q, %lld", (int)HEADS,
                   (long long)heads_kv, (long long)heads_q);
}

static kjit_status check_lse_shape(const kjit_attention_args *args, kjit_error *error) {
  const int64_t *q = args->q.shape;
  kjit_status status = tensor_check_length(&lse_rule, &args->lse, LSE_BATCH, q[BATCH], "q", error);
  if (status == KJIT_OK) status = tensor_check_length(&lse_rule, &args->lse, LSE_HEADS, q[HEADS], "q", error);
  return status == KJIT_OK ? tensor_check_length(&lse_rule, &args->lse, LSE_SEQ, q[SEQ], "q", error) : status;
}

static kjit_status check_most(const char *tensor, enum axis axis, int64_t length, int64_t most, kjit_error *error) {
  if (length <= most) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_ARG, "%s.shape[%d] (%s) is %lld: must be at most %lld", tensor, (int)axis,
                   axes[axis], (long long)length, (long long)most);
}

/* Both counts are at most MAX_COUNT, so their product does not overflow. */
static kjit_status check_pairs(const char *what, int64_t batch, int64_t heads, kjit_error *error) {
  if (batch * heads <= MAX_PAIRS) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_ARG, "%s: %lld batch entries of %lld heads: must be at most %lld together",
                   what, (long long)batch, (long long)heads, (long long)MAX_PAIRS);
}

static kjit_status check_shapes(const kjit_attention_args *args, kjit_error *error) {
  kjit_status status = check_equal_axes(args, error);
  if (status == KJIT_OK) status = check_heads(args, error);
  if (status == KJIT_OK && args->lse.data) status = check_lse_shape(args, error);
  if (status == KJIT_OK) status = check_most("q", BATCH, args->q.shape[BATCH], MAX_COUNT, error);
  if (status == KJIT_OK) status = check_most("q", HEADS, args->q.shape[HEADS], MAX_COUNT, error);
  if (status == KJIT_OK) status = check_pairs("q.shape", args->q.shape[BATCH], args->q.shape[HEADS], error);
  if (status == KJIT_OK) status = check_most("q", SEQ, args->q.shape[SEQ], MAX_SEQ, error);
  return status == KJIT_OK ? check_most("k", SEQ, args->k.shape[SEQ], MAX_SEQ, error) : status;
}

/* Check that the output does not begin where an input does, which is always a mistake. Address ranges are not compared,
 * because views may interleave without sharing an element. */
static kjit_status check_apart(const struct operand *operands, size_t count, kjit_error *error) {
  for (size_t i = 0; i < count; i++) {
    for (size_t j = i + 1; j < count; j++) {
      if (!operands[j].rule->written || operands[i].tensor->data != operands[j].tensor->data) continue;
      if (!operands[j].tensor->data) continue; /* both are empty */
      return error_set(error, KJIT_ERR_INVALID_ARG, "%s.data is %s.data: must be memory of its own",
                       operands[j].rule->name, operands[i].rule->name);
    }
  }
  return KJIT_OK;
}

static kjit_status check_scale(float scale, kjit_error *error) {
  /* The comparison is written so that a NaN fails. */
  if (scale >= 0 && scale <= MAX_SCALE) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_ARG,
                   "scale is %g: must be positive and at most %g, or 0 for 1/sqrt(head_dim)", (double)scale,
                   (double)MAX_SCALE);
}

kjit_status attention_arguments_check(const kjit_attention_args *args, int32_t device, kjit_error *error) {
  struct operand operands[OPERANDS_MAX];
  kjit_status status = KJIT_OK;
  if (args->flags & ~(KJIT_ATTENTION_CAUSAL | KJIT_ATTENTION_WINDOW))
    return error_invalid(error, "args.flags", "only KJIT_ATTENTION_* may be set");
  const size_t count = list_operands(args, operands);
  for (size_t i = 0; i < count && status == KJIT_OK; i++)
    status = tensor_check_place(operands[i].rule, operands[i].tensor, device, error);
  if (status == KJIT_OK) status = check_dtypes(args, error);
  for (size_t i = 0; i < count && status == KJIT_OK; i++)
    status = tensor_check_shape(operands[i].rule, operands[i].tensor, error);
  if (status == KJIT_OK) status = check_shapes(args, error);
  const bool some_empty = status == KJIT_OK && attention_arguments_are_empty(args);
  for (size_t i = 0; i < count && status == KJIT_OK; i++) {
    if (some_empty && tensor_is_empty(operands[i].rule, operands[i].tensor)) continue;
    status = tensor_check_layout(operands[i].rule, operands[i].tensor, error);
  }
  if (status == KJIT_OK) status = check_apart(operands, count, error);
  return status == KJIT_OK ? check_scale(args->scale, error) : status;
}

void attention_arguments_problem(const kjit_attention_args *args, kjit_attention_problem *problem) {
  *problem = (kjit_attention_problem){.struct_size = sizeof *problem,
                                      .dtype = args->q.dtype,
                                      .flags = args->flags,
                                      .batch = args->q.shape[BATCH],
                                      .heads_q = args->q.shape[HEADS],
                                      .heads_kv = args->k.shape[HEADS],
                                      .seq_q = args->q.shape[SEQ],
                                      .seq_kv = args->k.shape[SEQ],
                                      .head_dim = args->q.shape[HEAD_DIM],
                                      .head_dim_v = args->v.shape[HEAD_DIM]};
}

kjit_status attention_arguments_match_dtype(int32_t dtype, int32_t wanted, kjit_error *error) {
  if (dtype == wanted) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_CONFIG, "dtype is %s (%d): must be the tensors', %s (%d)", dtype_name(dtype),
                   (int)dtype, dtype_name(wanted), (int)wanted);
}

static inline kjit_status match_trait(const char *field, int32_t value, int64_t wanted, const char *what,
                                      kjit_error *error) {
  return value == ATTENTION_ANY ? KJIT_OK : rule_check_equal(field, value, wanted, what, error);
}

kjit_status attention_arguments_match(const kjit_attention_problem *problem, const struct attention_traits *config,
                                      kjit_error *error) {
  const int causal = problem->flags & KJIT_ATTENTION_CAUSAL ? 1 : 0;
  kjit_status status = attention_arguments_match_dtype(config->dtype, problem->dtype, error);
  if (status == KJIT_OK)
    status = match_trait("head_dim", config->head_dim, problem->head_dim, "tensors' head_dim", error);
  if (status == KJIT_OK)
    status = match_trait("head_dim_v", config->head_dim_v, problem->head_dim_v, "tensors' head_dim_v", error);
  return status == KJIT_OK ? match_trait("causal", config->causal, causal, "arguments' flag", error) : status;
}

struct attention_scale attention_arguments_scale(float given, int64_t head_dim) {
  const double scale = given > 0 ? (double)given : 1 / sqrt((double)head_dim);
  return (struct attention_scale){(float)scale, (float)(scale * LOG2_E)};
}

/* ---- Problems ---- */

#define MAX_HEAD_DIM INT32_MAX

static void set_default(int64_t *member, int64_t value) {
  if (*member == 0) *member = value;
}

static kjit_status check_size(const char *member, int64_t value, int64_t most, kjit_error *error) {
  if (value >= 1 && value <= most) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_ARG, "problem.%s is %lld: must be from 1 to %lld", member, (long long)value,
                   (long long)most);
}

static kjit_status check_problem(const kjit_attention_problem *problem, kjit_error *error) {
  const struct {
    const char *member;
    int64_t value, most;
  } sizes[] = {
      {"batch", problem->batch, MAX_COUNT},
      {"heads_q", problem->heads_q, MAX_COUNT},
      {"heads_kv", problem->heads_kv, MAX_COUNT},
      {"seq_q", problem->seq_q, MAX_SEQ},
      {"seq_kv", problem->seq_kv, MAX_SEQ},
      {"head_dim", problem->head_dim, MAX_HEAD_DIM},
      {"head_dim_v", problem->head_dim_v, MAX_HEAD_DIM},
  };
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes && status == KJIT_OK; i++)
    status = check_size(sizes[i].member, sizes[i].value, sizes[i].most, error);
  if (status == KJIT_OK && problem->seen_keys != 0)
    status = check_size("seen_keys", problem->seen_keys, MAX_SEQ, error);
  if (status == KJIT_OK) status = check_pairs("problem", problem->batch, problem->heads_q, error);
  if (status != KJIT_OK || problem->heads_q % problem->heads_kv == 0) return status;
  return error_set(error, KJIT_ERR_INVALID_ARG, "problem.heads_kv is %lld: must divide heads_q, %lld",
                   (long long)problem->heads_kv, (long long)problem->heads_q);
}

kjit_status attention_problem_take(kjit_attention_problem *out, const kjit_attention_problem *given,
                                   kjit_error *error) {
  const kjit_status status =
      struct_intake(out, sizeof *out, given, offsetof(kjit_attention_problem, seen_keys), "problem", error);
  if (status != KJIT_OK) return status;
  if (out->dtype != KJIT_FP16 && out->dtype != KJIT_BF16) {
    return error_set(error, KJIT_ERR_INVALID_ARG, "problem.dtype is %d: must be FP16 (5) or BF16 (15)",
                     (int)out->dtype);
  }
  if (out->flags & ~KJIT_ATTENTION_CAUSAL)
    return error_invalid(error, "problem.flags", "only KJIT_ATTENTION_* may be set");
  set_default(&out->batch, 1);
  set_default(&out->heads_q, 1);
  set_default(&out->heads_kv, out->heads_q);
  set_default(&out->seq_kv, out->seq_q);
  set_default(&out->head_dim_v, out->head_dim);
  return check_problem(out, error);
}
