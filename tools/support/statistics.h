/* The median, least and greatest of a set of timings. */
#ifndef KJIT_TOOLS_SUPPORT_STATISTICS_H
#define KJIT_TOOLS_SUPPORT_STATISTICS_H

#include <stddef.h>

struct statistics {
  double median, least, most;
  size_t count;
};

/* Sorts `values`. All members are 0 when there are none. */
struct statistics statistics_of(double *values, size_t count);

/* Seconds of a clock that only goes forward. */
double statistics_now(void);

#endif
