/* Making what is not in memory: the tiers, then one builder among processes, the compile, the publishing. */
#ifndef KJIT_JIT_BUILDER_PRODUCE_H
#define KJIT_JIT_BUILDER_PRODUCE_H

#include <stdbool.h>

#include "jit/builder_call.h"

/* Look through the tiers alone. KJIT_ERR_NOT_FOUND when none has the kernel. */
kjit_status builder_look_up(struct builder_call *call, kjit_artifact **out, kjit_error *error);

/* After a miss: wait for the other process that builds the kernel, or compile and publish. `refused` says that the
 * driver refused the kernel that the tiers have. `*expires_ns` is set when the artifact is a failure. */
kjit_status builder_produce(struct builder_call *call, bool refused, kjit_artifact **out, int64_t *expires_ns,
                            kjit_error *error);

/* Make an artifact that holds nothing but the key. */
kjit_status builder_make_key(struct builder_call *call, kjit_artifact **out, kjit_error *error);

#endif
