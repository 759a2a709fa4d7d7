#include "attention/attention_problem.h"

#include "base/error.h"
#include "base/struct_intake.h"

/* As of tensors: attention_arguments.c. */
#define MAX_BATCH_OR_HEADS 65535
#define MAX_SEQ            (INT32_MAX - 255)
#define MAX_HEAD_DIM       INT32_MAX

static void set_default(int64_t *member, int64_t value) {
  if (*member == 0) *member = value;
}

static kjit_status check_size(const char *member, int64_t value, int64_t most, kjit_error *error) {
  if (value >= 1 && value <= most) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_ARG, "problem.%s is %lld: must be from 1 to %lld", member, (long long)value,
                   (long long)most);
}

static kjit_status check(const kjit_attention_problem *problem, kjit_error *error) {
  const struct {
    const char *member;
    int64_t value, most;
  } sizes[] = {
      {"batch", problem->batch, MAX_BATCH_OR_HEADS},
      {"heads_q", problem->heads_q, MAX_BATCH_OR_HEADS},
      {"heads_kv", problem->heads_kv, MAX_BATCH_OR_HEADS},
      {"seq_q", problem->seq_q, MAX_SEQ},
      {"seq_kv", problem->seq_kv, MAX_SEQ},
      {"head_dim", problem->head_dim, MAX_HEAD_DIM},
      {"head_dim_v", problem->head_dim_v, MAX_HEAD_DIM},
  };
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes && status == KJIT_OK; i++)
    status = check_size(sizes[i].member, sizes[i].value, sizes[i].most, error);
  if (status != KJIT_OK || problem->heads_q % problem->heads_kv == 0) return status;
  return error_set(error, KJIT_ERR_INVALID_ARG, "problem.heads_kv is %lld: must divide heads_q, %lld",
                   (long long)problem->heads_kv, (long long)problem->heads_q);
}

kjit_status attention_problem_take(kjit_attention_problem *out, const kjit_attention_problem *given,
                                   kjit_error *error) {
  const kjit_status status = struct_intake(out, sizeof *out, given, sizeof *out, "problem", error);
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
  return check(out, error);
}
