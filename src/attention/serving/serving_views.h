/* A serving call's tensors as (outer, seq, heads, columns) tensors. Those whose rows follow one another have three
 * axes; they get an outer axis of length 1, so that one set of rules serves both. Pure; inline, because every call
 * looks. */
#ifndef KJIT_ATTENTION_SERVING_SERVING_VIEWS_H
#define KJIT_ATTENTION_SERVING_SERVING_VIEWS_H

#include <stdbool.h>

#include <kjit/attention_serving.h>

/* Longest sequence and widest window: sums of two still fit int32_t. */
#define SERVING_MAX_LENGTH (1 << 30)

enum serving_axis { OUTER, SEQ, HEADS, COLUMNS };
enum serving_operand { Q, K, V, O, K_NEW, V_NEW, LSE, K_DESCALE, V_DESCALE, OPERANDS };

static inline kjit_tensor serving_with_outer_axis(const kjit_tensor *tensor) {
  kjit_tensor view = *tensor;
  view.rank = 4;
  view.shape[OUTER] = 1;
  view.stride[OUTER] = 0;
  for (int axis = SEQ; axis <= COLUMNS; axis++) {
    view.shape[axis] = tensor->shape[axis - 1];
    view.stride[axis] = tensor->stride[axis - 1];
  }
  return view;
}

/* Is a tensor's batch axis missing, because the rows of all sequences follow one another? */
static inline bool serving_is_ragged(const kjit_attention_serving_args *args, int operand) {
  if (operand == Q || operand == O) return args->cu_seqlens_q != NULL;
  if (operand == K || operand == V) return args->cu_seqlens_k != NULL && !args->page_table;
  return args->cu_seqlens_k_new != NULL;
}

static inline kjit_tensor serving_view_of(const kjit_attention_serving_args *args, int operand) {
  const kjit_tensor *const tensors[] = {&args->q, &args->k, &args->v, &args->o, &args->k_new, &args->v_new};
  return serving_is_ragged(args, operand) && tensors[operand]->rank == 3 ? serving_with_outer_axis(tensors[operand])
                                                                         : *tensors[operand];
}

static inline kjit_tensor serving_lse_view(const kjit_attention_serving_args *args) {
  kjit_tensor view = args->lse;
  if (!args->cu_seqlens_q || view.rank != 2) return view;
  view.rank = 3;
  view.shape[2] = args->lse.shape[1], view.shape[1] = args->lse.shape[0], view.shape[0] = 1;
  view.stride[2] = args->lse.stride[1], view.stride[1] = args->lse.stride[0], view.stride[0] = 0;
  return view;
}

static inline kjit_tensor serving_descale_view(const kjit_tensor *descale) {
  kjit_tensor view = *descale;
  if (view.rank != 2) return view;
  view.rank = 3;
  view.shape[2] = view.stride[2] = 1;
  return view;
}

/* Are keys and values of 8 bits? */
static inline bool serving_is_narrow(const kjit_attention_serving_args *args) {
  return args->k.dtype == KJIT_FP8_E4M3;
}

#endif
