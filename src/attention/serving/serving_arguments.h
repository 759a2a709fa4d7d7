/* Checks of a serving call's arguments, as far as the host can see them, and the kernel's argument struct that they
 * become. Pure: no driver is asked. */
#ifndef KJIT_ATTENTION_SERVING_SERVING_ARGUMENTS_H
#define KJIT_ATTENTION_SERVING_SERVING_ARGUMENTS_H

#include "attention/serving/serving_family.h"
#include "attention_serving/params.h"

/* Is there nothing to do: no sequence, or no row? Then the other arguments are not looked at. */
bool serving_arguments_are_empty(const kjit_attention_serving_args *args);

/* Check everything that does not depend on a family. `device` is the one that is current. KJIT_ERR_INVALID_ARG names
 * the argument and the rule. */
kjit_status serving_arguments_check(const kjit_attention_serving_args *args, int32_t device, kjit_error *error);

/* What the choice of a kernel depends on, of checked arguments. */
struct serving_problem serving_arguments_problem(const kjit_attention_serving_args *args);

/* The strides of a tensor of sequences, positions, heads and columns, or of a cache's pages in place of sequences. */
struct attention_serving_strides serving_strides_of(const kjit_tensor *tensor);

/* Fill in the kernel's argument struct from checked arguments; schedule, partial results and arrivals stay null. */
void serving_arguments_fill(const kjit_attention_serving_args *args, struct attention_serving_params *params);

#endif
