/* The call whose problem has nothing to multiply: no query, no key, no head or no entry of the batch. */
#ifndef KJIT_ATTENTION_ATTENTION_EMPTY_H
#define KJIT_ATTENTION_ATTENTION_EMPTY_H

#include "attention/attention_family.h"

struct empty_call {
  kjit_runtime *runtime;
  kjit_tensor o, lse; /* rank 0: has no element, or is not wanted */
};

/* Only `enqueue` is set: there is no kernel, so nothing to choose, to build or to tune. */
extern const struct attention_family empty_attention;

/* Take checked arguments for which attention_arguments_are_empty() holds. KJIT_ERR_UNSUPPORTED for a head size that no
 * family takes, and for lse beside sinks where there is no key: each row's lse would be its head's sink. */
kjit_status attention_empty_prepare(struct empty_call *call, kjit_runtime *runtime, const kjit_attention_args *args,
                                    kjit_error *error);

#endif
