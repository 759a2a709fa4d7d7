/* Where candidates run: the first GPU, one problem's tensors on it, and what each candidate takes. The first driver
 * call of this process is made here. */
#ifndef KJIT_TOOLS_TUNE_STAGE_H
#define KJIT_TOOLS_TUNE_STAGE_H

#include <kjit/kjit.h>
#include <stdbool.h>

struct tune_stage;

/* A candidate: borrowed. */
struct stage_entrant {
  const kjit_config *config;
};

/* KJIT_ERR_NO_DRIVER without a GPU. */
kjit_status stage_open(struct tune_stage **out, kjit_error *error);
void stage_close(struct tune_stage *stage); /* accepts NULL */

/* Put a problem's tensors, random, and its float64 reference on the card, in place of those before. `entrants` must
 * stay until the next. */
kjit_status stage_set(struct tune_stage *stage, const kjit_attention_problem *problem,
                      const struct stage_entrant *entrants, size_t count, kjit_error *error);

/* As contest_ops has them; `user` is the stage. A run is timed between two events behind a write that empties L2; its
 * first loads the kernel. */
kjit_status stage_time(void *user, size_t entrant, double *microseconds, kjit_error *error);
kjit_status stage_check(void *user, size_t entrant, bool *right, kjit_error *error);

/* What the first GPU is, asked in a process of its own: this one can still fork() compilers. */
kjit_status stage_probe(kjit_device_info *device, kjit_error *error);

#endif
