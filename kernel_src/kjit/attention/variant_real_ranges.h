/* Ranges of real numbers, and ranges of what a tensor holds between two indices. Read by the C compiler and by NVRTC.
 */
#ifndef KJIT_KERNEL_SRC_KJIT_ATTENTION_VARIANT_REAL_RANGES_H
#define KJIT_KERNEL_SRC_KJIT_ATTENTION_VARIANT_REAL_RANGES_H

#include <kjit/attention/variant_ranges.h>

/* -- Real numbers ------------------------------------------------------------------------------------------------- */

KJIT_VARIANT_INLINE struct kjit_range_real kjit_range_real_any(void) {
  struct kjit_range_real range;
  range.most = (kjit_real)kjit_float_from_bits(0x7F800000u); /* infinity */
  range.least = -range.most;
  return range;
}

/* A range with an end that is no finite number may be NaN, of which nothing can be said. */
KJIT_VARIANT_INLINE bool kjit_range_is_finite(struct kjit_range_real a) {
  const kjit_real infinity = (kjit_real)kjit_float_from_bits(0x7F800000u);
  return a.least > -infinity && a.most < infinity;
}

KJIT_VARIANT_INLINE struct kjit_range_real kjit_range_real_between(kjit_real least, kjit_real most) {
  struct kjit_range_real range;
  range.least = least;
  range.most = most;
  return least <= most && kjit_range_is_finite(range) ? range : kjit_range_real_any();
}

/* A compiler may fuse a product with a sum, which leaves out one rounding; so the ends are moved by more than that. */
KJIT_VARIANT_INLINE struct kjit_range_real kjit_range_real_rounded(kjit_real least, kjit_real most) {
  const kjit_real unit = (kjit_real)2.4e-7, tiny = (kjit_real)1e-37;
  return kjit_range_real_between(least - kjit_real_absolute(least) * unit - tiny,
                                 most + kjit_real_absolute(most) * unit + tiny);
}

KJIT_VARIANT_INLINE struct kjit_range_real kjit_range_real_add(struct kjit_range_real a, struct kjit_range_real b) {
  return kjit_range_real_rounded(a.least + b.least, a.most + b.most);
}
KJIT_VARIANT_INLINE struct kjit_range_real kjit_range_real_subtract(struct kjit_range_real a,
                                                                    struct kjit_range_real b) {
  return kjit_range_real_rounded(a.least - b.most, a.most - b.least);
}
KJIT_VARIANT_INLINE struct kjit_range_real kjit_range_real_multiply(struct kjit_range_real a,
                                                                    struct kjit_range_real b) {
  const kjit_real ll = a.least * b.least, lm = a.least * b.most, ml = a.most * b.least, mm = a.most * b.most;
  if (!kjit_range_is_finite(a) || !kjit_range_is_finite(b)) return kjit_range_real_any();
  return kjit_range_real_rounded(kjit_real_minimum(kjit_real_minimum(ll, lm), kjit_real_minimum(ml, mm)),
                                 kjit_real_maximum(kjit_real_maximum(ll, lm), kjit_real_maximum(ml, mm)));
}
KJIT_VARIANT_INLINE struct kjit_range_real kjit_range_real_minimum(struct kjit_range_real a, struct kjit_range_real b) {
  if (!kjit_range_is_finite(a) || !kjit_range_is_finite(b)) return kjit_range_real_any();
  return kjit_range_real_between(kjit_real_minimum(a.least, b.least), kjit_real_minimum(a.most, b.most));
}
KJIT_VARIANT_INLINE struct kjit_range_real kjit_range_real_maximum(struct kjit_range_real a, struct kjit_range_real b) {
  if (!kjit_range_is_finite(a) || !kjit_range_is_finite(b)) return kjit_range_real_any();
  return kjit_range_real_between(kjit_real_maximum(a.least, b.least), kjit_real_maximum(a.most, b.most));
}
KJIT_VARIANT_INLINE struct kjit_range_real kjit_range_real_negate(struct kjit_range_real a) {
  return kjit_range_real_between(-a.most, -a.least);
}
KJIT_VARIANT_INLINE struct kjit_range_real kjit_range_real_absolute(struct kjit_range_real a) {
  if (a.least >= 0) return a;
  const struct kjit_range_real negative = kjit_range_real_negate(a);
  if (a.most <= 0) return negative;
  return kjit_range_real_between(0, kjit_real_maximum(a.most, negative.most));
}
KJIT_VARIANT_INLINE struct kjit_range_real kjit_range_real_floor(struct kjit_range_real a) {
  return kjit_range_real_between(kjit_real_floor(a.least), kjit_real_floor(a.most));
}
KJIT_VARIANT_INLINE struct kjit_range_real kjit_range_real_where(kjit_range_truth condition, struct kjit_range_real a,
                                                                 struct kjit_range_real b) {
  if (condition == KJIT_RANGE_TRUE) return a;
  if (condition == KJIT_RANGE_FALSE) return b;
  return kjit_range_real_between(kjit_real_minimum(a.least, b.least), kjit_real_maximum(a.most, b.most));
}
KJIT_VARIANT_INLINE struct kjit_range_real kjit_range_real_from_integer(struct kjit_range_integer a) {
  return kjit_range_real_between(kjit_real_from_integer(a.least), kjit_real_from_integer(a.most));
}
KJIT_VARIANT_INLINE struct kjit_range_integer kjit_range_integer_from_real(struct kjit_range_real a) {
  if (!kjit_range_is_finite(a)) return kjit_range_any();
  return kjit_range_between(kjit_integer_from_real(a.least), kjit_integer_from_real(a.most));
}
KJIT_VARIANT_INLINE kjit_range_truth kjit_range_real_less(struct kjit_range_real a, struct kjit_range_real b) {
  if (!kjit_range_is_finite(a) || !kjit_range_is_finite(b)) return KJIT_RANGE_EITHER;
  return (a.least < b.most ? KJIT_RANGE_TRUE : 0) | (a.most >= b.least ? KJIT_RANGE_FALSE : 0);
}
KJIT_VARIANT_INLINE kjit_range_truth kjit_range_real_less_equal(struct kjit_range_real a, struct kjit_range_real b) {
  if (!kjit_range_is_finite(a) || !kjit_range_is_finite(b)) return KJIT_RANGE_EITHER;
  return (a.least <= b.most ? KJIT_RANGE_TRUE : 0) | (a.most > b.least ? KJIT_RANGE_FALSE : 0);
}
KJIT_VARIANT_INLINE kjit_range_truth kjit_range_real_equal(struct kjit_range_real a, struct kjit_range_real b) {
  if (!kjit_range_is_finite(a) || !kjit_range_is_finite(b)) return KJIT_RANGE_EITHER;
  if (a.least > b.most || b.least > a.most) return KJIT_RANGE_FALSE;
  return a.least == a.most && b.least == b.most ? KJIT_RANGE_TRUE : KJIT_RANGE_EITHER;
}
KJIT_VARIANT_INLINE kjit_range_truth kjit_range_real_unequal(struct kjit_range_real a, struct kjit_range_real b) {
  return kjit_range_truth_not(kjit_range_real_equal(a, b));
}

/* -- Loads -------------------------------------------------------------------------------------------------------- */

/* The elements that a load may read: a box, its ends clamped into the tensor. */
struct kjit_range_box {
  int first[4], last[4];
  long long count;
};

KJIT_VARIANT_INLINE struct kjit_range_box kjit_range_box_begin(void) {
  struct kjit_range_box box;
  for (int axis = 0; axis < 4; axis++)
    box.first[axis] = box.last[axis] = 0;
  box.count = 1;
  return box;
}

KJIT_VARIANT_INLINE void kjit_range_box_set(struct kjit_range_box *box,
                                            const struct kjit_variant_tensor_argument *tensor, int axis,
                                            struct kjit_range_integer index) {
  const int last = tensor->size[axis] - 1;
  box->first[axis] = kjit_integer_minimum(kjit_integer_maximum(index.least, 0), last);
  box->last[axis] = kjit_integer_minimum(kjit_integer_maximum(index.most, 0), last);
  if (box->count <= KJIT_RANGE_LOADS_MAX) box->count *= (long long)box->last[axis] - box->first[axis] + 1;
}

/* The header has two ways to look at a box, since each load's wait for memory takes longer than all else: a kernel that
 * has registers for 16 elements defines KJIT_RANGE_BY_16 before it includes this header, and loads so many together.
 * Kernels that evaluate ranges beside their products would spill, and the host gains nothing by it.
 *
 * KJIT_RANGE_OVER_BOX calls `take` with each element, by 16 with some more than once. The loops over axes that the
 * tensor lacks run once. */
#ifndef KJIT_RANGE_BY_16
#define KJIT_RANGE_RUN(name)
#define KJIT_RANGE_OVER_BOX(name, box, tensor, take)                                                                   \
  for (int i = (box)->first[0]; i <= (box)->last[0]; i++)                                                              \
    for (int j = (box)->first[1]; j <= (box)->last[1]; j++)                                                            \
      for (int k = (box)->first[2]; k <= (box)->last[2]; k++)                                                          \
        for (int l = (box)->first[3]; l <= (box)->last[3]; l++)                                                        \
  take(kjit_load_##name(tensor, i *(tensor)->stride[0] + j * (tensor)->stride[1] + k * (tensor)->stride[2] +           \
                                    l * (tensor)->stride[3]))
#else
/* The elements of a box along its last axis that has more than one, `step` apart. */
struct kjit_range_line {
  int axis, count;
  long long step;
};

KJIT_VARIANT_INLINE struct kjit_range_line kjit_range_line_of(const struct kjit_variant_tensor_argument *tensor,
                                                              const struct kjit_range_box *box) {
  struct kjit_range_line line = {-1, 1, 0};
  for (int axis = 0; axis < 4; axis++)
    if (box->last[axis] > box->first[axis]) {
      line.axis = axis;
      line.count = box->last[axis] - box->first[axis] + 1;
      line.step = tensor->stride[axis];
    }
  return line;
}

/* 16 elements from `at` on, by 16 bytes where they are neighbours that lie so; where `left` are fewer, the last one
 * stands for those that lack. */
#define KJIT_RANGE_RUN(name)                                                                                           \
  struct kjit_range_run_##name {                                                                                       \
    __attribute__((aligned(16))) kjit_memory_##name x[16];                                                             \
  };                                                                                                                   \
  KJIT_VARIANT_INLINE struct kjit_range_run_##name kjit_range_run_of_##name(                                           \
      const struct kjit_variant_tensor_argument *tensor, long long at, long long step, int left) {                     \
    const kjit_memory_##name *from = (const kjit_memory_##name *)tensor->data + at;                                    \
    struct kjit_range_run_##name run;                                                                                  \
    if (step == 1 && left >= 16 && (unsigned long long)from % 16 == 0)                                                 \
      return *(const struct kjit_range_run_##name *)from;                                                              \
    for (int i = 0; i < 16; i++) {                                                                                     \
      run.x[i] = *from;                                                                                                \
      if (i + 1 < left) from += step;                                                                                  \
    }                                                                                                                  \
    return run;                                                                                                        \
  }

#define KJIT_RANGE_END(box, line, axis_) ((line).axis == (axis_) ? (box)->first[axis_] : (box)->last[axis_])
#define KJIT_RANGE_OVER_BOX(name, box, tensor, take)                                                                   \
  const struct kjit_range_line line = kjit_range_line_of(tensor, box);                                                 \
  for (int i = (box)->first[0]; i <= KJIT_RANGE_END(box, line, 0); i++)                                                \
    for (int j = (box)->first[1]; j <= KJIT_RANGE_END(box, line, 1); j++)                                              \
      for (int k = (box)->first[2]; k <= KJIT_RANGE_END(box, line, 2); k++)                                            \
        for (int l = (box)->first[3]; l <= KJIT_RANGE_END(box, line, 3); l++) {                                        \
          const long long at =                                                                                         \
              i * (tensor)->stride[0] + j * (tensor)->stride[1] + k * (tensor)->stride[2] + l * (tensor)->stride[3];   \
          for (int n = 0; n < line.count; n += 16) {                                                                   \
            const struct kjit_range_run_##name run =                                                                   \
                kjit_range_run_of_##name(tensor, at + n * line.step, line.step, line.count - n);                       \
            for (int e = 0; e < 16; e++)                                                                               \
              take(kjit_of_##name(run.x[e]))                                                                           \
          }                                                                                                            \
        }
#endif

#define KJIT_RANGE_LOAD_INTEGER(name)                                                                                  \
  KJIT_RANGE_RUN(name)                                                                                                 \
  KJIT_VARIANT_INLINE struct kjit_range_integer kjit_range_load_##name(                                                \
      const struct kjit_variant_tensor_argument *tensor, const struct kjit_range_box *box) {                           \
    int least = KJIT_INTEGER_MOST, most = KJIT_INTEGER_LEAST;                                                          \
    if (box->count > KJIT_RANGE_LOADS_MAX) return kjit_range_any();                                                    \
    KJIT_RANGE_OVER_BOX(name, box, tensor, KJIT_RANGE_TAKE_INTEGER);                                                   \
    return kjit_range_between(least, most);                                                                            \
  }
#define KJIT_RANGE_TAKE_INTEGER(element)                                                                               \
  {                                                                                                                    \
    const int x = element;                                                                                             \
    least = kjit_integer_minimum(least, x);                                                                            \
    most = kjit_integer_maximum(most, x);                                                                              \
  }

KJIT_RANGE_LOAD_INTEGER(uint8)
KJIT_RANGE_LOAD_INTEGER(int8)
KJIT_RANGE_LOAD_INTEGER(int16)
KJIT_RANGE_LOAD_INTEGER(int32)
KJIT_RANGE_LOAD_INTEGER(int64)

/* A NaN among the elements makes the range one of which nothing is known. */
#define KJIT_RANGE_LOAD_REAL(name)                                                                                     \
  KJIT_RANGE_RUN(name)                                                                                                 \
  KJIT_VARIANT_INLINE struct kjit_range_real kjit_range_load_##name(const struct kjit_variant_tensor_argument *tensor, \
                                                                    const struct kjit_range_box *box) {                \
    struct kjit_range_real range;                                                                                      \
    bool is_number = true;                                                                                             \
    range.most = -kjit_range_real_any().most;                                                                          \
    range.least = -range.most;                                                                                         \
    if (box->count > KJIT_RANGE_LOADS_MAX) return kjit_range_real_any();                                               \
    KJIT_RANGE_OVER_BOX(name, box, tensor, KJIT_RANGE_TAKE_REAL);                                                      \
    return is_number ? kjit_range_real_between(range.least, range.most) : kjit_range_real_any();                       \
  }
#define KJIT_RANGE_TAKE_REAL(element)                                                                                  \
  {                                                                                                                    \
    const kjit_real x = element;                                                                                       \
    is_number = is_number && x == x;                                                                                   \
    range.least = kjit_real_minimum(range.least, x);                                                                   \
    range.most = kjit_real_maximum(range.most, x);                                                                     \
  }

KJIT_RANGE_LOAD_REAL(fp16)
KJIT_RANGE_LOAD_REAL(bf16)
KJIT_RANGE_LOAD_REAL(fp32)
KJIT_RANGE_LOAD_REAL(fp64)

KJIT_RANGE_RUN(bool)
KJIT_VARIANT_INLINE kjit_range_truth kjit_range_load_bool(const struct kjit_variant_tensor_argument *tensor,
                                                          const struct kjit_range_box *box) {
  kjit_range_truth range = 0;
  if (box->count > KJIT_RANGE_LOADS_MAX) return KJIT_RANGE_EITHER;
#define KJIT_RANGE_TAKE_BOOL(element) range |= kjit_range_truth_of(element);
  KJIT_RANGE_OVER_BOX(bool, box, tensor, KJIT_RANGE_TAKE_BOOL);
  return range;
}

#endif
