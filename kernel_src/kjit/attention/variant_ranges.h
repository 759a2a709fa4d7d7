/* The operations of attention variants on ranges: from what the operands can be follows what the result can be. A block
 * of scores that holds no seen key, or seen keys alone, is found by evaluating the mask once on the ranges of its
 * queries and keys. Read by the C compiler and by NVRTC.
 *
 * Sound, not exact: a result's range holds every value that the operands' ranges allow, and maybe more. An integer has
 * its least and greatest value and the bits that are known, since shifts and masks keep bits and lose order. A truth
 * value says whether it can be true and whether it can be false. A real range that reaches infinity may be NaN. */
#ifndef KJIT_KERNEL_SRC_KJIT_ATTENTION_VARIANT_RANGES_H
#define KJIT_KERNEL_SRC_KJIT_ATTENTION_VARIANT_RANGES_H

#include <kjit/attention/variant_functions.h>

enum { KJIT_RANGE_TRUE = 1, KJIT_RANGE_FALSE = 2, KJIT_RANGE_EITHER = 3 };

/* Elements of a tensor that are read to find the range of one load; more are not looked at. */
#define KJIT_RANGE_LOADS_MAX 1024

struct kjit_range_integer {
  int least, most;
  unsigned zeros, ones; /* the bits that are known to be 0, and 1 */
};

struct kjit_range_real {
  kjit_real least, most;
};

typedef int kjit_range_truth; /* KJIT_RANGE_TRUE | KJIT_RANGE_FALSE, or one of them */

#ifdef __CUDACC__
#define KJIT_LEADING_ZEROS(x) __clz((int)(x))
#else
#define KJIT_LEADING_ZEROS(x) __builtin_clz(x)
#endif

/* -- Making integer ranges ---------------------------------------------------------------------------------------- */

/* The bits in front of the first one in which both ends differ are known. */
KJIT_VARIANT_INLINE struct kjit_range_integer kjit_range_between(int least, int most) {
  const unsigned different = (unsigned)least ^ (unsigned)most;
  const unsigned known = different ? ~(0xFFFFFFFFu >> KJIT_LEADING_ZEROS(different)) : 0xFFFFFFFFu;
  struct kjit_range_integer range;
  range.least = least;
  range.most = most;
  range.zeros = ~(unsigned)least & known;
  range.ones = (unsigned)least & known;
  return range;
}

KJIT_VARIANT_INLINE struct kjit_range_integer kjit_range_any(void) {
  return kjit_range_between(KJIT_INTEGER_LEAST, KJIT_INTEGER_MOST);
}

/* A sum or product that may leave 32 bits wraps to anything. */
KJIT_VARIANT_INLINE struct kjit_range_integer kjit_range_unless_wrapped(long long least, long long most) {
  if (least < KJIT_INTEGER_LEAST || most > KJIT_INTEGER_MOST) return kjit_range_any();
  return kjit_range_between((int)least, (int)most);
}

/* A range of which these bits are known too. */
KJIT_VARIANT_INLINE struct kjit_range_integer kjit_range_with_bits(struct kjit_range_integer range, unsigned zeros,
                                                                   unsigned ones) {
  const unsigned sign = 0x80000000u;
  range.zeros |= zeros;
  range.ones |= ones;
  const int least = (int)(range.ones | (range.zeros & sign ? 0 : sign));
  const int most = (int)(~range.zeros & (range.ones & sign ? 0xFFFFFFFFu : ~sign));
  range.least = kjit_integer_maximum(range.least, least);
  range.most = kjit_integer_minimum(range.most, most);
  return range;
}

KJIT_VARIANT_INLINE bool kjit_range_is_one(struct kjit_range_integer a) {
  return a.least == a.most;
}

/* The lowest bits of a sum follow from the lowest bits of both sides, as far as those are known. */
KJIT_VARIANT_INLINE unsigned kjit_range_low_bits(struct kjit_range_integer a, struct kjit_range_integer b) {
  const unsigned unknown = ~((a.zeros | a.ones) & (b.zeros | b.ones));
  return (unknown & (0u - unknown)) - 1u;
}

/* -- Integers ----------------------------------------------------------------------------------------------------- */

KJIT_VARIANT_INLINE struct kjit_range_integer kjit_range_integer_add(struct kjit_range_integer a,
                                                                     struct kjit_range_integer b) {
  const unsigned low = kjit_range_low_bits(a, b), sum = a.ones + b.ones;
  return kjit_range_with_bits(kjit_range_unless_wrapped((long long)a.least + b.least, (long long)a.most + b.most),
                              ~sum & low, sum & low);
}

KJIT_VARIANT_INLINE struct kjit_range_integer kjit_range_integer_subtract(struct kjit_range_integer a,
                                                                          struct kjit_range_integer b) {
  const unsigned low = kjit_range_low_bits(a, b), difference = a.ones - b.ones;
  return kjit_range_with_bits(kjit_range_unless_wrapped((long long)a.least - b.most, (long long)a.most - b.least),
                              ~difference & low, difference & low);
}

KJIT_VARIANT_INLINE long long kjit_range_least4(long long a, long long b, long long c, long long d) {
  const long long x = a < b ? a : b, y = c < d ? c : d;
  return x < y ? x : y;
}

KJIT_VARIANT_INLINE struct kjit_range_integer kjit_range_integer_multiply(struct kjit_range_integer a,
                                                                          struct kjit_range_integer b) {
  const long long ll = (long long)a.least * b.least, lm = (long long)a.least * b.most;
  const long long ml = (long long)a.most * b.least, mm = (long long)a.most * b.most;
  return kjit_range_unless_wrapped(kjit_range_least4(ll, lm, ml, mm), -kjit_range_least4(-ll, -lm, -ml, -mm));
}

/* For divisors of at least 1 the quotient grows with the dividend, and has its ends at ends of the divisor. */
KJIT_VARIANT_INLINE struct kjit_range_integer kjit_range_integer_divide(struct kjit_range_integer a,
                                                                        struct kjit_range_integer b) {
  const int least = kjit_integer_minimum(kjit_integer_divide(a.least, b.least), kjit_integer_divide(a.least, b.most));
  const int most = kjit_integer_maximum(kjit_integer_divide(a.most, b.least), kjit_integer_divide(a.most, b.most));
  return kjit_range_between(least, most);
}

KJIT_VARIANT_INLINE struct kjit_range_integer kjit_range_integer_modulo(struct kjit_range_integer a,
                                                                        struct kjit_range_integer b) {
  const int divisor = kjit_integer_maximum(b.most, 1);
  struct kjit_range_integer range = kjit_range_between(0, divisor - 1);
  if (!kjit_range_is_one(b)) return range;
  if (kjit_integer_divide(a.least, divisor) == kjit_integer_divide(a.most, divisor))
    range = kjit_range_between(kjit_integer_modulo(a.least, divisor), kjit_integer_modulo(a.most, divisor));
  const unsigned low = (unsigned)divisor - 1u;
  if (((unsigned)divisor & low) == 0) range = kjit_range_with_bits(range, a.zeros & low, a.ones & low);
  return range;
}

KJIT_VARIANT_INLINE struct kjit_range_integer kjit_range_integer_minimum(struct kjit_range_integer a,
                                                                         struct kjit_range_integer b) {
  return kjit_range_between(kjit_integer_minimum(a.least, b.least), kjit_integer_minimum(a.most, b.most));
}

KJIT_VARIANT_INLINE struct kjit_range_integer kjit_range_integer_maximum(struct kjit_range_integer a,
                                                                         struct kjit_range_integer b) {
  return kjit_range_between(kjit_integer_maximum(a.least, b.least), kjit_integer_maximum(a.most, b.most));
}

KJIT_VARIANT_INLINE struct kjit_range_integer kjit_range_integer_negate(struct kjit_range_integer a) {
  return kjit_range_unless_wrapped(-(long long)a.most, -(long long)a.least);
}

KJIT_VARIANT_INLINE struct kjit_range_integer kjit_range_integer_absolute(struct kjit_range_integer a) {
  if (a.least >= 0) return a;
  if (a.most <= 0) return kjit_range_integer_negate(a);
  return kjit_range_unless_wrapped(0, kjit_integer_maximum(a.most, 0) > -(long long)a.least ? a.most
                                                                                            : -(long long)a.least);
}

/* Of a number that is not negative, and-ing takes bits away; or-ing adds bits. */
KJIT_VARIANT_INLINE struct kjit_range_integer kjit_range_integer_and(struct kjit_range_integer a,
                                                                     struct kjit_range_integer b) {
  struct kjit_range_integer range = kjit_range_any();
  if (a.least >= 0) range = kjit_range_between(0, a.most);
  if (b.least >= 0 && b.most < range.most) range = kjit_range_between(0, b.most);
  return kjit_range_with_bits(range, a.zeros | b.zeros, a.ones & b.ones);
}

KJIT_VARIANT_INLINE struct kjit_range_integer kjit_range_integer_or(struct kjit_range_integer a,
                                                                    struct kjit_range_integer b) {
  struct kjit_range_integer range = kjit_range_any();
  if (a.least >= 0 && b.least >= 0)
    range = kjit_range_between(kjit_integer_maximum(a.least, b.least), KJIT_INTEGER_MOST);
  return kjit_range_with_bits(range, a.zeros & b.zeros, a.ones | b.ones);
}

KJIT_VARIANT_INLINE struct kjit_range_integer kjit_range_integer_xor(struct kjit_range_integer a,
                                                                     struct kjit_range_integer b) {
  return kjit_range_with_bits(kjit_range_any(), (a.zeros & b.zeros) | (a.ones & b.ones),
                              (a.zeros & b.ones) | (a.ones & b.zeros));
}

KJIT_VARIANT_INLINE struct kjit_range_integer kjit_range_integer_complement(struct kjit_range_integer a) {
  struct kjit_range_integer range;
  range.least = kjit_integer_complement(a.most);
  range.most = kjit_integer_complement(a.least);
  range.zeros = a.ones;
  range.ones = a.zeros;
  return range;
}

KJIT_VARIANT_INLINE struct kjit_range_integer kjit_range_integer_shift_left(struct kjit_range_integer a,
                                                                            struct kjit_range_integer b) {
  if (!kjit_range_is_one(b)) return kjit_range_any();
  const unsigned count = (unsigned)b.least & 31u;
  const long long unit = 1LL << count;
  return kjit_range_with_bits(kjit_range_unless_wrapped(a.least * unit, a.most * unit),
                              a.zeros << count | ((1u << count) - 1u), a.ones << count);
}

KJIT_VARIANT_INLINE struct kjit_range_integer kjit_range_integer_shift_right(struct kjit_range_integer a,
                                                                             struct kjit_range_integer b) {
  if (!kjit_range_is_one(b)) return kjit_range_any();
  const struct kjit_range_integer range =
      kjit_range_between(kjit_integer_shift_right(a.least, b.least), kjit_integer_shift_right(a.most, b.least));
  return kjit_range_with_bits(range, (unsigned)kjit_integer_shift_right((int)a.zeros, b.least),
                              (unsigned)kjit_integer_shift_right((int)a.ones, b.least));
}

KJIT_VARIANT_INLINE kjit_range_truth kjit_range_integer_less(struct kjit_range_integer a, struct kjit_range_integer b) {
  return (a.least < b.most ? KJIT_RANGE_TRUE : 0) | (a.most >= b.least ? KJIT_RANGE_FALSE : 0);
}
KJIT_VARIANT_INLINE kjit_range_truth kjit_range_integer_less_equal(struct kjit_range_integer a,
                                                                   struct kjit_range_integer b) {
  return (a.least <= b.most ? KJIT_RANGE_TRUE : 0) | (a.most > b.least ? KJIT_RANGE_FALSE : 0);
}
KJIT_VARIANT_INLINE kjit_range_truth kjit_range_integer_equal(struct kjit_range_integer a,
                                                              struct kjit_range_integer b) {
  if (a.least > b.most || b.least > a.most || (a.zeros & b.ones) || (a.ones & b.zeros)) return KJIT_RANGE_FALSE;
  return kjit_range_is_one(a) && kjit_range_is_one(b) ? KJIT_RANGE_TRUE : KJIT_RANGE_EITHER;
}

/* -- Truth values ------------------------------------------------------------------------------------------------- */

KJIT_VARIANT_INLINE kjit_range_truth kjit_range_truth_of(bool a) {
  return a ? KJIT_RANGE_TRUE : KJIT_RANGE_FALSE;
}
KJIT_VARIANT_INLINE kjit_range_truth kjit_range_truth_and(kjit_range_truth a, kjit_range_truth b) {
  return (a & b & KJIT_RANGE_TRUE) | ((a | b) & KJIT_RANGE_FALSE);
}
KJIT_VARIANT_INLINE kjit_range_truth kjit_range_truth_or(kjit_range_truth a, kjit_range_truth b) {
  return ((a | b) & KJIT_RANGE_TRUE) | (a & b & KJIT_RANGE_FALSE);
}
KJIT_VARIANT_INLINE kjit_range_truth kjit_range_truth_not(kjit_range_truth a) {
  return (a & KJIT_RANGE_TRUE ? KJIT_RANGE_FALSE : 0) | (a & KJIT_RANGE_FALSE ? KJIT_RANGE_TRUE : 0);
}
KJIT_VARIANT_INLINE kjit_range_truth kjit_range_truth_equal(kjit_range_truth a, kjit_range_truth b) {
  if (a == KJIT_RANGE_EITHER || b == KJIT_RANGE_EITHER) return KJIT_RANGE_EITHER;
  return kjit_range_truth_of(a == b);
}
KJIT_VARIANT_INLINE kjit_range_truth kjit_range_truth_unequal(kjit_range_truth a, kjit_range_truth b) {
  return kjit_range_truth_not(kjit_range_truth_equal(a, b));
}
KJIT_VARIANT_INLINE kjit_range_truth kjit_range_integer_unequal(struct kjit_range_integer a,
                                                                struct kjit_range_integer b) {
  return kjit_range_truth_not(kjit_range_integer_equal(a, b));
}
KJIT_VARIANT_INLINE struct kjit_range_integer kjit_range_integer_from_truth(kjit_range_truth a) {
  return kjit_range_between(a & KJIT_RANGE_FALSE ? 0 : 1, a & KJIT_RANGE_TRUE ? 1 : 0);
}
KJIT_VARIANT_INLINE kjit_range_truth kjit_range_truth_where(kjit_range_truth condition, kjit_range_truth a,
                                                            kjit_range_truth b) {
  return (condition & KJIT_RANGE_TRUE ? a : 0) | (condition & KJIT_RANGE_FALSE ? b : 0);
}
KJIT_VARIANT_INLINE struct kjit_range_integer
kjit_range_integer_where(kjit_range_truth condition, struct kjit_range_integer a, struct kjit_range_integer b) {
  if (condition == KJIT_RANGE_TRUE) return a;
  if (condition == KJIT_RANGE_FALSE) return b;
  struct kjit_range_integer range;
  range.least = kjit_integer_minimum(a.least, b.least);
  range.most = kjit_integer_maximum(a.most, b.most);
  range.zeros = a.zeros & b.zeros;
  range.ones = a.ones & b.ones;
  return range;
}

#endif
