/* Where a backward call writes the gradients of what its score function reads. */
#ifndef KJIT_ATTENTION_BACKWARD_BACKWARD_GRADIENTS_H
#define KJIT_ATTENTION_BACKWARD_BACKWARD_GRADIENTS_H

#include <stdbool.h>

#include <kjit/attention_backward.h>

#include "kjit/attention/variant_arguments.h"

/* Is one of them wanted? */
bool backward_gradients_are_asked(const kjit_attention_backward_args *args);

/* Check them and take them, in the order of the tensors of the call's variant, which was checked before.
 * KJIT_ERR_INVALID_ARG names the tensor and the rule; KJIT_ERR_UNSUPPORTED says what has no gradient. */
kjit_status backward_gradients_take(const kjit_attention_backward_args *args, int32_t device,
                                    struct kjit_variant_tensor_argument out[KJIT_VARIANT_TENSORS_MAX],
                                    kjit_error *error);

#endif
