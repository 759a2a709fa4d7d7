/* Where candidates run: the first GPU, one problem's tensors on it, and what each candidate takes. The first driver
 * call of this process is made here. */
#ifndef KJIT_TOOLS_TUNE_STAGE_H
#define KJIT_TOOLS_TUNE_STAGE_H

#include <kjit/kjit.h>
#include <stdbool.h>

struct tune_stage;

/* A candidate that runs; its config is borrowed. */
struct stage_entrant {
  const kjit_config *config;
};

/* KJIT_ERR_NO_DRIVER without a GPU. */
kjit_status stage_open(struct tune_stage **out, kjit_error *error);
void stage_close(struct tune_stage *stage); /* accepts NULL */

/* Put a problem's tensors, filled at random, and its float64 reference on the card, in place of those before.
 * `entrants` must stay valid until the next call. */
kjit_status stage_set(struct tune_stage *stage, const kjit_attention_problem *problem,
                      const struct stage_entrant *entrants, size_t count, kjit_error *error);

/* The functions of kjit_contest_ops; `user` is the stage. A run is timed between two events, after a write that empties
 * L2. An entrant's first run loads its kernel. */
kjit_status stage_time(void *user, size_t entrant, double *microseconds, kjit_error *error);
kjit_status stage_check(void *user, size_t entrant, int *right, kjit_error *error);

/* Ask what the first GPU is, in a process of its own, so that this one can still fork() compilers. */
kjit_status stage_probe(kjit_device_info *device, kjit_error *error);

#endif
