/* The variant that a call's arguments ask for: the caller's own, or one that the library writes for the plain members
 * (window, chunk, softcap, ALiBi, bias), or none beside sinks and block lists. */
#ifndef KJIT_ATTENTION_ATTENTION_VARIANT_CALL_H
#define KJIT_ATTENTION_ATTENTION_VARIANT_CALL_H

#include "attention/attention_variant_launch.h"

/* Check the members of a variant and take them. The rest of the arguments has been checked. KJIT_ERR_INVALID_ARG names
 * the member and the rule. */
kjit_status attention_variant_of_args(struct attention_variant_launch *launch, const kjit_attention_args *args,
                                      int32_t device, kjit_error *error);

/* Keys that a row sees on average, by the plain members; 0: all, or it cannot be said. */
int64_t attention_variant_seen_keys(const kjit_attention_args *args);

#endif
