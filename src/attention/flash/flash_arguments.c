#include "attention/flash/flash_arguments.h"

#include "attention/attention_arguments.h"
#include "attention/flash/flash_traits.h"
#include "attention/tensor_check.h"
#include "base/error.h"

enum axis { BATCH, SEQ, HEADS };
enum lse_axis { LSE_BATCH, LSE_HEADS, LSE_SEQ };

static kjit_status check_head_size(const char *name, int64_t columns, kjit_error *error) {
  if (columns >= 8 && columns % 8 == 0 && columns <= FLASH_MAX_HEAD) return KJIT_OK;
  return error_set(error, KJIT_ERR_UNSUPPORTED, "%s is %lld: flash_forward takes multiples of 8 up to 256", name,
                   (long long)columns);
}

kjit_status flash_arguments_check_problem(const kjit_attention_problem *problem, kjit_error *error) {
  const kjit_status status = check_head_size("head_dim", problem->head_dim, error);
  return status == KJIT_OK ? check_head_size("head_dim_v", problem->head_dim_v, error) : status;
}

kjit_status flash_arguments_match(const kjit_attention_problem *problem, const kjit_flash_config *config,
                                  kjit_error *error) {
  const kjit_status status = attention_arguments_match_dtype(config->dtype, problem->dtype, error);
  if (status != KJIT_OK) return status;
  const kjit_flash_traits traits = flash_traits_of(problem);
  const int32_t d_head = flash_traits_d_head(&traits);
  if (config->d_head == d_head) return KJIT_OK;
  if (traits.head_dim == d_head && traits.head_dim_v == d_head) {
    return error_set(error, KJIT_ERR_INVALID_CONFIG, "d_head is %d: must be the tensors' head_dim, %d",
                     (int)config->d_head, (int)d_head);
  }
  return error_set(error, KJIT_ERR_INVALID_CONFIG,
                   "d_head is %d: must be %d, the larger of the tensors' head_dim (%d) and head_dim_v (%d) in whole "
                   "16s, at least 32",
                   (int)config->d_head, (int)d_head, (int)traits.head_dim, (int)traits.head_dim_v);
}

static struct flash_forward_strides strides_of(const kjit_tensor *tensor) {
  return (struct flash_forward_strides){
      .batch = tensor_stride(tensor, BATCH), .seq = tensor_stride(tensor, SEQ), .head = tensor_stride(tensor, HEADS)};
}

void flash_arguments_fill(const kjit_attention_args *args, const kjit_attention_problem *problem,
                          struct flash_forward_params *params) {
  const struct attention_scale scale = attention_arguments_scale(args->scale, problem->head_dim);
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
      .seq_q = (int)problem->seq_q,
      .seq_kv = (int)problem->seq_kv,
      .scale = scale.scale,
      .scale_log2 = scale.scale_log2,
      .heads_per_kv = (int)(problem->heads_q / problem->heads_kv),
  };
}
