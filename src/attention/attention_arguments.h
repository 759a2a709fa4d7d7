/* The arguments of a call: are they right, whatever the family? Pure: no driver is asked. */
#ifndef KJIT_ATTENTION_ATTENTION_ARGUMENTS_H
#define KJIT_ATTENTION_ATTENTION_ARGUMENTS_H

#include <kjit/attention.h>

/* Everything that does not depend on a family, on the device that is current. KJIT_ERR_INVALID_ARG names the tensor,
 * the member and the rule. */
kjit_status attention_arguments_check(const kjit_attention_args *args, int32_t device, kjit_error *error);

/* The problem that checked arguments are. */
void attention_arguments_problem(const kjit_attention_args *args, kjit_attention_problem *problem);

#endif
