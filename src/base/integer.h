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

/* The quotient of a value of at least 0 and a unit of at least 1, rounded up. Their sum must fit into 64 bits; that is
 * not checked, because this is on the path of every launch. */
static inline int64_t integer_divide_up(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit;
}

/* The least multiple of `unit` that is not below `value`, under the same conditions. */
static inline int64_t integer_round_up(int64_t value, int64_t unit) {
  return integer_divide_up(value, unit) * unit;
}

/* The product of two values of at least 0, or the largest number where it does not fit. */
static inline int64_t integer_product(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

#endif
