/* Checks of a call's arguments, and of problems without tensors, that hold for every family. Pure: no driver is asked.
 */
#ifndef KJIT_ATTENTION_ATTENTION_ARGUMENTS_H
#define KJIT_ATTENTION_ATTENTION_ARGUMENTS_H

#include <stdbool.h>

#include <kjit/attention.h>

/* Check everything that does not depend on a family. `device` is the one that is current. KJIT_ERR_INVALID_ARG names
 * the tensor, the member and the rule. */
kjit_status attention_arguments_check(const kjit_attention_args *args, int32_t device, kjit_error *error);

/* Whether checked arguments leave nothing to multiply: no query, no key, no head or no entry of the batch. Inline,
 * because every launch asks. */
static inline bool attention_arguments_are_empty(const kjit_attention_args *args) {
  const int64_t *const q = args->q.shape;
  return q[0] == 0 || q[1] == 0 || q[2] == 0 || args->k.shape[1] == 0;
}

/* The problem that checked arguments describe. */
void attention_arguments_problem(const kjit_attention_args *args, kjit_attention_problem *problem);

/* Copy a caller's problem: zeros become defaults, every size is checked. KJIT_ERR_INVALID_ARG names the member. */
kjit_status attention_problem_take(kjit_attention_problem *out, const kjit_attention_problem *given, kjit_error *error);

/* Check that a config's dtype is that of the tensors. KJIT_ERR_INVALID_CONFIG. */
kjit_status attention_arguments_match_dtype(int32_t dtype, int32_t wanted, kjit_error *error);

/* A trait on which the kernel does not depend. */
#define ATTENTION_ANY (-1)

/* What a config says of the problem that its kernel computes. `causal` is 0 or 1. */
struct attention_traits {
  int32_t dtype, head_dim, head_dim_v, causal;
};

/* Check that it is so. KJIT_ERR_INVALID_CONFIG names the field. Each launch with a caller's config asks. */
kjit_status attention_arguments_match(const kjit_attention_problem *problem, const struct attention_traits *config,
                                      kjit_error *error);

/* The factor of the scores: for powers of e, and multiplied by log2(e) for powers of 2. */
struct attention_scale {
  float scale, scale_log2;
};

/* The caller's scale, or 1/sqrt(head_dim) when it is 0. */
struct attention_scale attention_arguments_scale(float given, int64_t head_dim);

#endif
