/* What the families that compute gradients share: the kernels' scalar arguments, and the check of a config against a
 * problem.
 *
 * Threads: everything here is pure. */
#include "attention/attention_arguments.h"
#include "attention/backward/backward_call.h"
#include "attention/tensor_check.h"
#include "base/error.h"

enum axis { BATCH, SEQ, HEADS };
enum row_axis { ROW_BATCH, ROW_HEADS };

static struct flash_backward_strides strides_of(const kjit_tensor *tensor) {
  if (!tensor->data) return (struct flash_backward_strides){0};
  return (struct flash_backward_strides){
      .batch = tensor_stride(tensor, BATCH), .seq = tensor_stride(tensor, SEQ), .head = tensor_stride(tensor, HEADS)};
}

static struct flash_backward_row_strides row_strides_of(const kjit_tensor *tensor) {
  if (!tensor->data) return (struct flash_backward_row_strides){0};
  return (struct flash_backward_row_strides){.batch = tensor_stride(tensor, ROW_BATCH),
                                             .head = tensor_stride(tensor, ROW_HEADS)};
}

void backward_fill(const kjit_attention_backward_args *args, const kjit_attention_problem *problem,
                   struct flash_backward_params *params) {
  const struct attention_scale scale = attention_arguments_scale(args->scale, problem->head_dim);
  *params = (struct flash_backward_params){
      .q = args->q.data,
      .k = args->k.data,
      .v = args->v.data,
      .o = args->o.data,
      .dout = args->dout.data,
      .dq = args->dq.data,
      .dk = args->dk.data,
      .dv = args->dv.data,
      .lse = args->lse.data,
      .dlse = args->dlse.data,
      .delta = args->delta.data,
      .q_stride = strides_of(&args->q),
      .k_stride = strides_of(&args->k),
      .v_stride = strides_of(&args->v),
      .o_stride = strides_of(&args->o),
      .dout_stride = strides_of(&args->dout),
      .dq_stride = strides_of(&args->dq),
      .dk_stride = strides_of(&args->dk),
      .dv_stride = strides_of(&args->dv),
      .lse_stride = row_strides_of(&args->lse),
      .dlse_stride = row_strides_of(&args->dlse),
      .delta_stride = row_strides_of(&args->delta),
      .seq_q = (int)problem->seq_q,
      .seq_kv = (int)problem->seq_kv,
      .scale = scale.scale,
      .scale_log2 = scale.scale_log2,
      .heads_per_kv = (int)(problem->heads_q / problem->heads_kv),
  };
}
