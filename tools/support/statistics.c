/* The median, least and greatest of a set of timings, and a clock that only goes forward. Medians are used because a
 * run that was disturbed only becomes longer, which moves a mean but hardly a median. No state; any thread may call. */
#include "support/statistics.h"

#include <stdlib.h>
#include <time.h>

static int compare_doubles(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

struct statistics statistics_of(double *values, size_t count) {
  if (count == 0) return (struct statistics){0};
  qsort(values, count, sizeof *values, compare_doubles);
  const double upper = values[count / 2], lower = values[(count - 1) / 2];
  return (struct statistics){(lower + upper) / 2, values[0], values[count - 1], count};
}

double statistics_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
