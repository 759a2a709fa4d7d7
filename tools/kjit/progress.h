/* How far a long run is, on stderr: a bar on a terminal, a line now and then otherwise. */
#ifndef KJIT_TOOLS_PROGRESS_H
#define KJIT_TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

struct progress {
  bool terminal;
  double started, shown; /* seconds of a steady clock */
};

/* Seconds of a steady clock. */
double seconds_now(void);

void progress_start(struct progress *progress);

/* Count, rate and time left, when it is time to say so; `user` is the struct progress. At done == total the bar ends.
 */
void progress_show(void *user, size_t done, size_t total);

#endif
