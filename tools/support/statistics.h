/* What a set of timings comes to. */
#ifndef KJIT_TOOLS_SUPPORT_STATISTICS_H
#define KJIT_TOOLS_SUPPORT_STATISTICS_H

#include <stddef.h>

struct statistics {
  double median, least, most;
  size_t count;
};

/* Sorts `values`. All zero for none. */
struct statistics statistics_of(double *values, size_t count);

/* Seconds of a clock that only goes forward. */
double statistics_now(void);

#endif
