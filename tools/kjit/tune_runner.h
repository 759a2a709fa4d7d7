/* The user's program that times candidates of a family: started once, asked by a line, answers by a line.
 * docs/families.md has the protocol. `error` is never NULL here. */
#ifndef KJIT_TOOLS_TUNE_RUNNER_H
#define KJIT_TOOLS_TUNE_RUNNER_H

#include <kjit/kjit.h>
#include <stdbool.h>

#include "tune_stage.h"

struct tune_runner;

/* `command` is given to /bin/sh when the first candidate is timed. `seconds`: the longest wait for an answer. */
kjit_status runner_open(struct tune_runner **out, const char *command, uint64_t seconds, const kjit_device_info *device,
                        const char *arch, kjit_error *error);
void runner_close(struct tune_runner *runner); /* accepts NULL; ends the program */

/* Begin with a problem. `entrants` must stay valid until the next call. */
kjit_status runner_set(struct tune_runner *runner, const kjit_family_problem *problem,
                       const struct stage_entrant *entrants, size_t count, kjit_error *error);

/* The functions of kjit_contest_ops; `user` is the runner. An answer "wrong" is a failure of runner_time(). A program
 * that ended, or did not answer in time, costs the candidate, and is started again for the next one. */
kjit_status runner_time(void *user, size_t entrant, double *microseconds, kjit_error *error);

#endif
