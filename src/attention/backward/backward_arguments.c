/* The tensors of a backward call, checked.
 *
 * The call without its gradients is a forward call: q, k, v, o and lse are checked as that one's arguments, so that
 * both calls have the same rules and the same messages. Then follow the tensors that only the backward call has: each
 * has the shape of one of the former, and a rule of its own for strides, because some are read and some written.
 *
 * Threads: everything here is pure. */
#include "attention/backward/backward_arguments.h"

#include <stdbool.h>

#include "attention/attention_arguments.h"
#include "attention/backward/backward_gradients.h"
#include "attention/rule.h"
#include "attention/tensor_check.h"
#include "base/error.h"

static const char *const axes[] = {"batch", "seq", "heads", "head_dim"};
static const char *const row_axes[] = {"batch", "heads", "seq"};

/* Strides and addresses of 16-bit tensors are multiples of 8 elements, because every kernel copies 16 bytes at a time.
 */
#define WIDE(name, written)                                                                                            \
  { name, axes, 4, 2, 8, 16, written, 0 }
#define ROWS(name, written)                                                                                            \
  { name, row_axes, 3, 4, 1, 4, written, 0 }

/* A tensor that only the backward call has, and the one whose shape and dtype it has. */
struct operand {
  struct tensor_rule rule;
  const kjit_tensor *tensor;
  const kjit_tensor *like;
  const char *like_name;
};

enum { OPERANDS = 6 };

static void list_operands(const kjit_attention_backward_args *args, struct operand out[OPERANDS]) {
  out[0] = (struct operand){WIDE("dout", 0), &args->dout, &args->o, "o"};
  out[1] = (struct operand){ROWS("dlse", 0), &args->dlse, &args->lse, "lse"};
  out[2] = (struct operand){WIDE("dq", 1), &args->dq, &args->q, "q"};
  out[3] = (struct operand){WIDE("dk", 1), &args->dk, &args->k, "k"};
  out[4] = (struct operand){WIDE("dv", 1), &args->dv, &args->v, "v"};
  out[5] = (struct operand){ROWS("delta", 1), &args->delta, &args->lse, "lse"};
}

void backward_arguments_list(const kjit_attention_backward_args *args, struct backward_tensor out[BACKWARD_TENSORS]) {
  const struct backward_tensor all[BACKWARD_TENSORS] = {
      {"q", &args->q},     {"k", &args->k},       {"v", &args->v},        {"o", &args->o},
      {"lse", &args->lse}, {"dout", &args->dout}, {"dlse", &args->dlse},  {"dq", &args->dq},
      {"dk", &args->dk},   {"dv", &args->dv},     {"delta", &args->delta}};
  for (size_t i = 0; i < BACKWARD_TENSORS; i++)
    out[i] = all[i];
}

uint32_t backward_arguments_gradients(const kjit_attention_backward_args *args) {
  return (args->dq.data ? KJIT_GRADIENT_Q : 0) | (args->dk.data ? KJIT_GRADIENT_K : 0) |
         (args->dv.data ? KJIT_GRADIENT_V : 0) | (backward_gradients_are_asked(args) ? KJIT_GRADIENT_TENSORS : 0);
}

/* Check that what may not be left out is there. */
static kjit_status check_given(const kjit_attention_backward_args *args, kjit_error *error) {
  const uint32_t gradients = backward_arguments_gradients(args);
  if (!args->lse.data) return error_invalid(error, "lse.data", "must be the forward's log-sum-exp, not NULL");
  if (!args->dout.data) return error_invalid(error, "dout.data", "must be the gradient of o, not NULL");
  if (!gradients) return error_invalid(error, "dq.data, dk.data and dv.data", "at least one must not be NULL");
  if (args->delta.data || gradients == KJIT_GRADIENT_V) return KJIT_OK;
  return error_invalid(error, "delta.data", "must be scratch memory of lse's shape where more than dv is wanted");
}

kjit_attention_args backward_arguments_forward(const kjit_attention_backward_args *args) {
  kjit_attention_args forward = kjit_attention_args_default();
  forward.q = args->q;
  forward.k = args->k;
  forward.v = args->v;
  forward.o = args->o;
  forward.lse = args->lse;
  forward.scale = args->scale;
  forward.flags = args->flags & ~KJIT_ATTENTION_DETERMINISTIC;
  forward.variant = args->variant;
  forward.scalar_values = args->scalar_values;
  forward.variant_tensors = args->variant_tensors;
  forward.blocks = args->blocks;
  forward.sinks = args->sinks;
  forward.alibi_slopes = args->alibi_slopes;
  forward.bias = args->bias;
  forward.window_left = args->window_left;
  forward.window_right = args->window_right;
  forward.attention_chunk = args->attention_chunk;
  forward.softcap = args->softcap;
  return forward;
}

/* Check what the backward kernels take less of than the forward ones: heads and batch entries are axes of their grids,
 * and every axis has an element. */
static kjit_status check_grid(const kjit_attention_args *forward, kjit_error *error) {
  if (attention_arguments_are_empty(forward))
    return error_set(error, KJIT_ERR_INVALID_ARG,
                     "q and k: an axis has no element; must be at least 1 for gradients, which are zeros then");
  return rule_check_grid(forward->q.shape[0], forward->q.shape[2], "attention backward", error);
}

/* Check the part of the arguments that is a forward call. */
static kjit_status check_forward(const kjit_attention_backward_args *args, int32_t device, kjit_error *error) {
  const kjit_attention_args forward = backward_arguments_forward(args);
  kjit_status status = attention_arguments_check(&forward, device, error);
  if (status == KJIT_OK) status = check_grid(&forward, error);
  if (status != KJIT_OK || !args->blocks) return status;
  return error_set(error, KJIT_ERR_UNSUPPORTED, "blocks: lists of blocks have no gradients: give the mask alone");
}

static kjit_status check_operand(const struct operand *operand, int32_t device, kjit_error *error) {
  const struct tensor_rule *rule = &operand->rule;
  kjit_status status = tensor_check_place(rule, operand->tensor, device, error);
  if (status != KJIT_OK) return status;
  if (operand->tensor->dtype != operand->like->dtype) {
    return error_set(error, KJIT_ERR_INVALID_ARG, "%s.dtype is %d: must be that of %s, %d", rule->name,
                     (int)operand->tensor->dtype, operand->like_name, (int)operand->like->dtype);
  }
  status = tensor_check_shape(rule, operand->tensor, error);
  for (uint32_t axis = 0; axis < rule->rank && status == KJIT_OK; axis++)
    status = tensor_check_length(rule, operand->tensor, axis, operand->like->shape[axis], operand->like_name, error);
  return status == KJIT_OK ? tensor_check_layout(rule, operand->tensor, error) : status;
}

static bool is_written(const char *name) {
  return name[0] == 'd' && name[1] != 'o' && name[1] != 'l'; /* dq, dk, dv and delta, but not dout and dlse */
}

/* Check that no written tensor begins where another one does, which is always a mistake. */
static kjit_status check_apart(const kjit_attention_backward_args *args, kjit_error *error) {
  struct backward_tensor all[BACKWARD_TENSORS];
  backward_arguments_list(args, all);
  for (size_t i = 0; i < BACKWARD_TENSORS; i++) {
    for (size_t j = i + 1; j < BACKWARD_TENSORS; j++) {
      if (!is_written(all[j].name) || !all[j].tensor->data || all[i].tensor->data != all[j].tensor->data) continue;
      return error_set(error, KJIT_ERR_INVALID_ARG, "%s.data is %s.data: must be memory of its own", all[j].name,
                       all[i].name);
    }
  }
  return KJIT_OK;
}

kjit_status backward_arguments_check(const kjit_attention_backward_args *args, int32_t device, kjit_error *error) {
  struct operand operands[OPERANDS];
  kjit_status status = check_given(args, error);
  if (status == KJIT_OK) status = check_forward(args, device, error);
  list_operands(args, operands);
  for (size_t i = 0; i < OPERANDS && status == KJIT_OK; i++) {
    if (operands[i].tensor->data) status = check_operand(&operands[i], device, error);
  }
  return status == KJIT_OK ? check_apart(args, error) : status;
}

void backward_arguments_problem(const kjit_attention_backward_args *args, kjit_attention_problem *problem) {
  const kjit_attention_args forward = backward_arguments_forward(args);
  attention_arguments_problem(&forward, problem);
}
