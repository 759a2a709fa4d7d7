/* The nearest of several names to one that was misspelt, for "did you mean" in messages. */
#ifndef KJIT_BASE_NEAREST_H
#define KJIT_BASE_NEAREST_H

#include <stddef.h>

struct nearest {
  const char *wanted; /* as it was written; need not end in NUL */
  size_t wanted_bytes;
  const char *best; /* the nearest so far, borrowed; NULL: none is near enough to be meant */
  size_t best_distance;
};

void nearest_begin(struct nearest *nearest, const char *wanted, size_t wanted_bytes);

/* Look at one more name. Of two names at the same distance the first stays. */
void nearest_offer(struct nearest *nearest, const char *name);

/* The names of a list. */
void nearest_offer_all(struct nearest *nearest, const char *const *names, size_t count);

#endif
