/* Random choices that can be repeated, because every program prints the seed that it used. */
#ifndef KJIT_TOOLS_SUPPORT_RANDOM_H
#define KJIT_TOOLS_SUPPORT_RANDOM_H

#include <stddef.h>
#include <stdint.h>

struct random {
  uint64_t state;
};

/* A seed: $KJIT_SEED if it is a number, else random bytes of the operating system. */
uint64_t random_fresh_seed(void);

/* SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014). */
uint64_t random_next(struct random *random);

/* Uniform in [0, bound); bound > 0. The bias of the remainder is below 2^-32 for the small bounds used here. */
size_t random_below(struct random *random, size_t bound);

#endif
