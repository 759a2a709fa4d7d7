/* Arithmetic on counts and sizes, in 64 bits: narrower operands widen by themselves. */
#ifndef KJIT_BASE_INTEGER_H
#define KJIT_BASE_INTEGER_H

#include <stdint.h>

static inline int64_t integer_min(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static inline int64_t integer_max(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* A value of at least 0 by a unit of at least 1. Their sum must fit: nothing is checked, for launches wait for this. */
static inline int64_t integer_divide_up(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit;
}

/* Likewise: the least multiple of the unit that is not below the value. */
static inline int64_t integer_round_up(int64_t value, int64_t unit) {
  return integer_divide_up(value, unit) * unit;
}

#endif
