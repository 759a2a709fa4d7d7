/* attention_backward_sm90 as a family: its configs, the numbers that follow from them, and the planner. Pure. */
#ifndef KJIT_ATTENTION_BACKWARD_SM90_BACKWARD_H
#define KJIT_ATTENTION_BACKWARD_SM90_BACKWARD_H

#include "attention/backward/backward_family.h"

extern const kjit_family sm90_backward_family;
extern const struct backward_family sm90_backward;

/* The family's values as a struct. */
static inline const kjit_attention_backward_sm90_config *sm90_backward_view(const int32_t *values) {
  return (const kjit_attention_backward_sm90_config *)values;
}

/* Does a legal config's block own key rows (dk, dv), not query rows (dq)? */
bool sm90_backward_owns_keys(const kjit_attention_backward_sm90_config *config);

/* Do two consumers split dk and dv of the same 64 keys? */
bool sm90_backward_splits(const kjit_attention_backward_sm90_config *config);

/* Do consumers stay half a step apart from one tile to the next? A block then has two tiles of keys, of one band of
 * columns each. */
bool sm90_backward_carries(const kjit_attention_backward_sm90_config *config);

/* Rows of a legal config's block. */
int32_t sm90_backward_own_rows(const kjit_attention_backward_sm90_config *config);

/* The two rules that depend on the tile: a consumer thread's registers, a block's shared memory. */
bool sm90_backward_fits(const kjit_attention_backward_sm90_config *config);

/* Choose by rules; kjit_attention_backward_choose(). */
kjit_status sm90_backward_choose(const struct backward_wanted *wanted, uint32_t left, const struct family_place *place,
                                 int32_t *values, kjit_error *error);

/* Choose the three kernels that sum dq in global memory, where they are faster than the others. False: they are not, or
 * they do not compute this problem. struct backward_family has it as choose_all(). */
bool sm90_backward_choose_sums(const kjit_attention_problem *problem, uint32_t gradients,
                               const struct family_place *place, struct backward_choice *out);

#endif
