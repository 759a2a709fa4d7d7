/* The arguments of a call, and problems without tensors: are they right, whatever the family? Pure: no driver is asked.
 */
#ifndef KJIT_ATTENTION_ATTENTION_ARGUMENTS_H
#define KJIT_ATTENTION_ATTENTION_ARGUMENTS_H

#include <kjit/attention.h>

/* Everything that does not depend on a family, on the device that is current. KJIT_ERR_INVALID_ARG names the tensor,
 * the member and the rule. */
kjit_status attention_arguments_check(const kjit_attention_args *args, int32_t device, kjit_error *error);

/* The problem that checked arguments are. */
void attention_arguments_problem(const kjit_attention_args *args, kjit_attention_problem *problem);

/* Take in a caller's problem: defaults in place of zeros, every size checked. KJIT_ERR_INVALID_ARG names the member. */
kjit_status attention_problem_take(kjit_attention_problem *out, const kjit_attention_problem *given, kjit_error *error);

/* Is a config's dtype the tensors'? KJIT_ERR_INVALID_CONFIG. */
kjit_status attention_arguments_match_dtype(int32_t dtype, int32_t wanted, kjit_error *error);

/* What kernels multiply scores by, for powers of e and of 2. */
struct attention_scale {
  float scale, scale_log2;
};

/* The scale given, or for 0 that of the head size, 1/sqrt(head_dim). */
struct attention_scale attention_arguments_scale(float given, int64_t head_dim);

#endif
