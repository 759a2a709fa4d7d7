/* A problem as a caller states it, with its defaults filled in. Pure. */
#ifndef KJIT_ATTENTION_ATTENTION_PROBLEM_H
#define KJIT_ATTENTION_ATTENTION_PROBLEM_H

#include <kjit/attention.h>

/* Take in a caller's struct: defaults in place of zeros, every size checked. KJIT_ERR_INVALID_ARG names the member. */
kjit_status attention_problem_take(kjit_attention_problem *out, const kjit_attention_problem *given, kjit_error *error);

#endif
