#include "attention/flash_arguments.h"

#include <math.h>

#include "attention/attention_arguments.h"
#include "attention/tensor_check.h"
#include "base/error.h"
#include "jit/field_table.h"

#define LOG2_E 1.4426950408889634

enum axis { BATCH, SEQ, HEADS, HEAD_DIM };
enum lse_axis { LSE_BATCH, LSE_HEADS, LSE_SEQ };

static const char *dtype_name(int32_t dtype) {
  const char *name = field_dtype_name(dtype);
  return name ? name : "no dtype";
}

kjit_status flash_arguments_check_problem(const kjit_attention_problem *problem, kjit_error *error) {
  if (problem->flags & KJIT_ATTENTION_CAUSAL)
    return error_set(error, KJIT_ERR_UNSUPPORTED, "causal: flash_forward computes full attention");
  if (problem->heads_kv != problem->heads_q) {
    return error_set(error, KJIT_ERR_UNSUPPORTED,
                     "heads_kv is %lld: flash_forward needs as many key heads as query heads, %lld",
                     (long long)problem->heads_kv, (long long)problem->heads_q);
  }
  if (problem->head_dim_v == problem->head_dim) return KJIT_OK;
  return error_set(error, KJIT_ERR_UNSUPPORTED, "head_dim_v is %lld: flash_forward needs it to be head_dim, %lld",
                   (long long)problem->head_dim_v, (long long)problem->head_dim);
}

kjit_status flash_arguments_check(const kjit_attention_args *args, int32_t device, kjit_error *error) {
  kjit_attention_problem problem;
  const kjit_status status = attention_arguments_check(args, device, error);
  if (status != KJIT_OK) return status;
  attention_arguments_problem(args, &problem);
  return flash_arguments_check_problem(&problem, error);
}

kjit_status flash_arguments_match(const kjit_attention_args *args, const kjit_flash_config *config, kjit_error *error) {
  if (config->dtype != args->q.dtype) {
    return error_set(error, KJIT_ERR_INVALID_CONFIG, "dtype is %s (%d): must be the tensors', %s (%d)",
                     dtype_name(config->dtype), (int)config->dtype, dtype_name(args->q.dtype), (int)args->q.dtype);
  }
  if (config->d_head != args->q.shape[HEAD_DIM]) {
    return error_set(error, KJIT_ERR_INVALID_CONFIG, "d_head is %d: must be the tensors' head_dim, %lld",
                     (int)config->d_head, (long long)args->q.shape[HEAD_DIM]);
  }
  return KJIT_OK;
}

static struct flash_forward_strides strides_of(const kjit_tensor *tensor) {
  return (struct flash_forward_strides){
      .batch = tensor_stride(tensor, BATCH), .seq = tensor_stride(tensor, SEQ), .head = tensor_stride(tensor, HEADS)};
}

void flash_arguments_fill(const kjit_attention_args *args, struct flash_forward_params *params) {
  const double scale = args->scale > 0 ? (double)args->scale : 1 / sqrt((double)args->q.shape[HEAD_DIM]);
  const _Bool lse = args->lse.data != NULL;
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
      .seq_q = (int)args->q.shape[SEQ],
      .seq_kv = (int)args->k.shape[SEQ],
      .scale = (float)scale,
      .scale_log2 = (float)(scale * LOG2_E),
  };
}
