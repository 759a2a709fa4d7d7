/* Timing on the GPU: events around the work, the L2 cache emptied before it. */
#ifndef KJIT_TOOLS_SUPPORT_TIMER_H
#define KJIT_TOOLS_SUPPORT_TIMER_H

#include <stdbool.h>

#include "support/card.h"

struct timer {
  const struct card *card;
  CUevent begin, end;
  struct card_buffer flush; /* written before each run; without one the caches stay as the last run left them */
};

/* With `flush_l2`, a buffer twice the size of L2 is written before each run. */
kjit_status timer_create(struct timer *timer, const struct card *card, bool flush_l2, kjit_error *error);
void timer_destroy(struct timer *timer); /* accepts a zeroed one */

/* Run the work once on the card's stream and wait for it. */
kjit_status timer_run(const struct timer *timer, card_work work, void *user, double *milliseconds, kjit_error *error);

#endif
