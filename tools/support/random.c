/* A generator of random numbers whose sequence follows from one printed seed, so that a failed run can be repeated.
 * SplitMix64 is used because it is five lines long and good enough for choosing test cases. A struct random belongs
 * to one thread. */
#include "support/random.h"

#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

uint64_t random_fresh_seed(void) {
  const char *given = getenv("KJIT_SEED");
  char *end = NULL;
  const uint64_t number = given ? strtoull(given, &end, 0) : 0;
  if (end && end != given && *end == '\0') return number;
  uint64_t seed;
  if (getrandom(&seed, sizeof seed, 0) == (ssize_t)sizeof seed) return seed;
  return (uint64_t)time(NULL) * 1000003u + (uint64_t)getpid();
}

uint64_t random_next(struct random *random) {
  uint64_t x = random->state += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

size_t random_below(struct random *random, size_t bound) {
  return (size_t)(random_next(random) % bound);
}
