/* Making what is not in memory: the tiers, then one builder among processes, the compile, the publishing. */
#ifndef KJIT_JIT_BUILDER_PRODUCE_H
#define KJIT_JIT_BUILDER_PRODUCE_H

#include "jit/builder_call.h"

/* The tiers alone. KJIT_ERR_NOT_FOUND for a miss. */
kjit_status builder_look_up(struct builder_call *call, kjit_artifact **out, kjit_error *error);

/* After a miss: wait for the builder of another process, or compile and publish. `refused`: the driver refused what the
 * tiers have. `*expires_ns` is set for the artifact of a failure. */
kjit_status builder_produce(struct builder_call *call, _Bool refused, kjit_artifact **out, int64_t *expires_ns,
                            kjit_error *error);

/* An artifact of the key alone. */
kjit_status builder_make_key(struct builder_call *call, kjit_artifact **out, kjit_error *error);

#endif
