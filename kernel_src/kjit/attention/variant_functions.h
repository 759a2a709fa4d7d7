/* The operations of attention variants, one function each. A variant's kernel text and the library's host evaluator
 * call the same functions, so that both compute the same. Read by the C compiler and by NVRTC.
 *
 * Integers are of 32 bits and wrap. Division and remainder round towards minus infinity; a divisor below 1 counts as 1,
 * a shift by n is one by n modulo 32. No operation traps. KJIT_VARIANT_REAL is the type that real numbers are computed
 * in: float in kernels, double where the host evaluates. */
#ifndef KJIT_KERNEL_SRC_KJIT_ATTENTION_VARIANT_FUNCTIONS_H
#define KJIT_KERNEL_SRC_KJIT_ATTENTION_VARIANT_FUNCTIONS_H

#include <kjit/attention/variant_arguments.h>

#ifdef __CUDACC__
#define KJIT_VARIANT_INLINE static __device__ __forceinline__
#else
#define KJIT_VARIANT_INLINE static inline
#if !defined(__cplusplus) && !defined(bool)
#define bool _Bool
#endif
#endif
#ifndef KJIT_VARIANT_REAL
#define KJIT_VARIANT_REAL float
#endif

typedef KJIT_VARIANT_REAL kjit_real;

#define KJIT_INTEGER_LEAST (-2147483647 - 1)
#define KJIT_INTEGER_MOST  2147483647

/* -- Integers ----------------------------------------------------------------------------------------------------- */

KJIT_VARIANT_INLINE int kjit_integer_add(int a, int b) {
  return (int)((unsigned)a + (unsigned)b);
}
KJIT_VARIANT_INLINE int kjit_integer_subtract(int a, int b) {
  return (int)((unsigned)a - (unsigned)b);
}
KJIT_VARIANT_INLINE int kjit_integer_multiply(int a, int b) {
  return (int)((unsigned)a * (unsigned)b);
}
KJIT_VARIANT_INLINE int kjit_integer_minimum(int a, int b) {
  return a < b ? a : b;
}
KJIT_VARIANT_INLINE int kjit_integer_maximum(int a, int b) {
  return a > b ? a : b;
}
/* A power of two that the compiler knows becomes a shift, which rounds towards minus infinity by itself. */
KJIT_VARIANT_INLINE int kjit_integer_divide(int a, int b) {
  const int divisor = kjit_integer_maximum(b, 1);
  return a / divisor - (a % divisor < 0 ? 1 : 0);
}
KJIT_VARIANT_INLINE int kjit_integer_modulo(int a, int b) {
  const int divisor = kjit_integer_maximum(b, 1), rest = a % divisor;
  return rest < 0 ? rest + divisor : rest;
}
KJIT_VARIANT_INLINE int kjit_integer_negate(int a) {
  return (int)(0u - (unsigned)a);
}
KJIT_VARIANT_INLINE int kjit_integer_absolute(int a) {
  return a < 0 ? kjit_integer_negate(a) : a;
}
KJIT_VARIANT_INLINE int kjit_integer_and(int a, int b) {
  return (int)((unsigned)a & (unsigned)b);
}
KJIT_VARIANT_INLINE int kjit_integer_or(int a, int b) {
  return (int)((unsigned)a | (unsigned)b);
}
KJIT_VARIANT_INLINE int kjit_integer_xor(int a, int b) {
  return (int)((unsigned)a ^ (unsigned)b);
}
KJIT_VARIANT_INLINE int kjit_integer_complement(int a) {
  return (int)~(unsigned)a;
}
KJIT_VARIANT_INLINE int kjit_integer_shift_left(int a, int b) {
  return (int)((unsigned)a << ((unsigned)b & 31u));
}
/* The sign is kept. Both compilers shift negative numbers arithmetically. */
KJIT_VARIANT_INLINE int kjit_integer_shift_right(int a, int b) {
  return a >> ((unsigned)b & 31u);
}
KJIT_VARIANT_INLINE bool kjit_integer_less(int a, int b) {
  return a < b;
}
KJIT_VARIANT_INLINE bool kjit_integer_less_equal(int a, int b) {
  return a <= b;
}
KJIT_VARIANT_INLINE bool kjit_integer_equal(int a, int b) {
  return a == b;
}
KJIT_VARIANT_INLINE bool kjit_integer_unequal(int a, int b) {
  return a != b;
}
KJIT_VARIANT_INLINE int kjit_integer_where(bool condition, int a, int b) {
  return condition ? a : b;
}
KJIT_VARIANT_INLINE int kjit_integer_from_truth(bool a) {
  return a ? 1 : 0;
}

/* -- Truth values ------------------------------------------------------------------------------------------------- */

KJIT_VARIANT_INLINE bool kjit_truth_and(bool a, bool b) {
  return a && b;
}
KJIT_VARIANT_INLINE bool kjit_truth_or(bool a, bool b) {
  return a || b;
}
KJIT_VARIANT_INLINE bool kjit_truth_not(bool a) {
  return !a;
}
KJIT_VARIANT_INLINE bool kjit_truth_equal(bool a, bool b) {
  return a == b;
}
KJIT_VARIANT_INLINE bool kjit_truth_unequal(bool a, bool b) {
  return a != b;
}
KJIT_VARIANT_INLINE bool kjit_truth_where(bool condition, bool a, bool b) {
  return condition ? a : b;
}

/* -- Wide integers, of which the bounds of row intervals are made ---------------------------------------------------
 */

KJIT_VARIANT_INLINE int kjit_integer_from_wide(long long a) {
  return a < KJIT_INTEGER_LEAST ? KJIT_INTEGER_LEAST : a > KJIT_INTEGER_MOST ? KJIT_INTEGER_MOST : (int)a;
}
KJIT_VARIANT_INLINE long long kjit_wide_from_integer(int a) {
  return a;
}
/* Bounds are sums of a few products, whose factors are cut to 32 bits: none comes near the end of 64. */
KJIT_VARIANT_INLINE long long kjit_wide_add(long long a, long long b) {
  return a + b;
}
KJIT_VARIANT_INLINE long long kjit_wide_subtract(long long a, long long b) {
  return a - b;
}
KJIT_VARIANT_INLINE long long kjit_wide_multiply(long long a, long long b) {
  return (long long)kjit_integer_from_wide(a) * kjit_integer_from_wide(b);
}
KJIT_VARIANT_INLINE bool kjit_wide_less(long long a, long long b) {
  return a < b;
}

/* -- Real numbers ------------------------------------------------------------------------------------------------- */

KJIT_VARIANT_INLINE kjit_real kjit_real_add(kjit_real a, kjit_real b) {
  return a + b;
}
KJIT_VARIANT_INLINE kjit_real kjit_real_subtract(kjit_real a, kjit_real b) {
  return a - b;
}
KJIT_VARIANT_INLINE kjit_real kjit_real_multiply(kjit_real a, kjit_real b) {
  return a * b;
}
KJIT_VARIANT_INLINE kjit_real kjit_real_divide(kjit_real a, kjit_real b) {
  return a / b;
}
KJIT_VARIANT_INLINE kjit_real kjit_real_minimum(kjit_real a, kjit_real b) {
  return a < b ? a : b;
}
KJIT_VARIANT_INLINE kjit_real kjit_real_maximum(kjit_real a, kjit_real b) {
  return a > b ? a : b;
}
KJIT_VARIANT_INLINE kjit_real kjit_real_negate(kjit_real a) {
  return -a;
}
KJIT_VARIANT_INLINE bool kjit_real_less(kjit_real a, kjit_real b) {
  return a < b;
}
KJIT_VARIANT_INLINE bool kjit_real_less_equal(kjit_real a, kjit_real b) {
  return a <= b;
}
KJIT_VARIANT_INLINE bool kjit_real_equal(kjit_real a, kjit_real b) {
  return a == b;
}
KJIT_VARIANT_INLINE bool kjit_real_unequal(kjit_real a, kjit_real b) {
  return a != b;
}
KJIT_VARIANT_INLINE kjit_real kjit_real_where(bool condition, kjit_real a, kjit_real b) {
  return condition ? a : b;
}
KJIT_VARIANT_INLINE kjit_real kjit_real_from_integer(int a) {
  return (kjit_real)a;
}
/* Towards zero, cut to 32 bits; NaN gives 0. */
KJIT_VARIANT_INLINE int kjit_integer_from_real(kjit_real a) {
  if (!(a > (kjit_real)-2147483648.0)) return a == a ? KJIT_INTEGER_LEAST : 0;
  return a < (kjit_real)2147483648.0 ? (int)a : KJIT_INTEGER_MOST;
}

/* In kernels the exponentials are those of the special function unit, whose relative error is below 2^-21. */
#ifdef __CUDACC__
KJIT_VARIANT_INLINE float kjit_real_absolute(float a) {
  return fabsf(a);
}
KJIT_VARIANT_INLINE float kjit_real_floor(float a) {
  return floorf(a);
}
KJIT_VARIANT_INLINE float kjit_real_sqrt(float a) {
  return sqrtf(a);
}
KJIT_VARIANT_INLINE float kjit_real_erf(float a) {
  return erff(a);
}
KJIT_VARIANT_INLINE float kjit_real_power(float a, float b) {
  return powf(a, b);
}
KJIT_VARIANT_INLINE float kjit_real_exp2(float a) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(a));
  return result;
}
KJIT_VARIANT_INLINE float kjit_real_exp(float a) {
  return kjit_real_exp2(a * 1.4426950408889634f);
}
KJIT_VARIANT_INLINE float kjit_real_log2(float a) {
  float result;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(a));
  return result;
}
KJIT_VARIANT_INLINE float kjit_real_log(float a) {
  return kjit_real_log2(a) * 0.6931471805599453f;
}
/* The error is below 2^-10.9 of the result: 0.025 of a score that is capped at 50. */
KJIT_VARIANT_INLINE float kjit_real_tanh(float a) {
  float result;
  asm("tanh.approx.f32 %0, %1;" : "=f"(result) : "f"(a));
  return result;
}
KJIT_VARIANT_INLINE float kjit_real_tanh_exact(float a) {
  return tanhf(a);
}
KJIT_VARIANT_INLINE float kjit_real_sigmoid(float a) {
  return __fdividef(1.0f, 1.0f + kjit_real_exp(-a));
}
#else
KJIT_VARIANT_INLINE kjit_real kjit_real_absolute(kjit_real a) {
  return (kjit_real)__builtin_fabs(a);
}
KJIT_VARIANT_INLINE kjit_real kjit_real_floor(kjit_real a) {
  return (kjit_real)__builtin_floor(a);
}
KJIT_VARIANT_INLINE kjit_real kjit_real_sqrt(kjit_real a) {
  return (kjit_real)__builtin_sqrt(a);
}
KJIT_VARIANT_INLINE kjit_real kjit_real_erf(kjit_real a) {
  return (kjit_real)__builtin_erf(a);
}
KJIT_VARIANT_INLINE kjit_real kjit_real_power(kjit_real a, kjit_real b) {
  return (kjit_real)__builtin_pow(a, b);
}
KJIT_VARIANT_INLINE kjit_real kjit_real_exp2(kjit_real a) {
  return (kjit_real)__builtin_exp2(a);
}
KJIT_VARIANT_INLINE kjit_real kjit_real_exp(kjit_real a) {
  return (kjit_real)__builtin_exp(a);
}
KJIT_VARIANT_INLINE kjit_real kjit_real_log2(kjit_real a) {
  return (kjit_real)__builtin_log2(a);
}
KJIT_VARIANT_INLINE kjit_real kjit_real_log(kjit_real a) {
  return (kjit_real)__builtin_log(a);
}
KJIT_VARIANT_INLINE kjit_real kjit_real_tanh(kjit_real a) {
  return (kjit_real)__builtin_tanh(a);
}
KJIT_VARIANT_INLINE kjit_real kjit_real_tanh_exact(kjit_real a) {
  return (kjit_real)__builtin_tanh(a);
}
KJIT_VARIANT_INLINE kjit_real kjit_real_sigmoid(kjit_real a) {
  return (kjit_real)(1 / (1 + __builtin_exp(-a)));
}
#endif
KJIT_VARIANT_INLINE kjit_real kjit_real_modulo(kjit_real a, kjit_real b) {
  return a - kjit_real_floor(a / b) * b;
}

/* -- Scalars and tensors ------------------------------------------------------------------------------------------ */

KJIT_VARIANT_INLINE float kjit_float_from_bits(unsigned bits) {
#ifdef __CUDACC__
  return __uint_as_float(bits);
#else
  union {
    unsigned bits;
    float value;
  } both;
  both.bits = bits;
  return both.value;
#endif
}

KJIT_VARIANT_INLINE float kjit_float_from_half(unsigned short half) {
#ifdef __CUDACC__
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(half));
  return result;
#else
  const unsigned sign = (unsigned)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 0x3FF;
  if (exponent == 31) return kjit_float_from_bits(sign | 0x7F800000u | fraction << 13);
  if (exponent) return kjit_float_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = (float)fraction * 5.9604644775390625e-8f; /* 2^-24 */
  return sign ? -magnitude : magnitude;
#endif
}

/* Sizes are at least 1, and the compiler is told so. A place is not negative, and as an unsigned number its product
 * with the stride takes two instructions less. */
KJIT_VARIANT_INLINE long long kjit_variant_step(const struct kjit_variant_tensor_argument *tensor, int axis,
                                                int index) {
  const unsigned last = (unsigned)(tensor->size[axis] - 1) & KJIT_INTEGER_MOST;
  const unsigned place = index < 0 ? 0 : (unsigned)index;
  return (long long)(place > last ? last : place) * tensor->stride[axis];
}

/* The element at an index whose every part is clamped into its axis. */
KJIT_VARIANT_INLINE long long kjit_variant_at0(const struct kjit_variant_tensor_argument *tensor) {
  (void)tensor;
  return 0;
}
KJIT_VARIANT_INLINE long long kjit_variant_at1(const struct kjit_variant_tensor_argument *tensor, int i) {
  return kjit_variant_step(tensor, 0, i);
}
KJIT_VARIANT_INLINE long long kjit_variant_at2(const struct kjit_variant_tensor_argument *tensor, int i, int j) {
  return kjit_variant_step(tensor, 0, i) + kjit_variant_step(tensor, 1, j);
}
KJIT_VARIANT_INLINE long long kjit_variant_at3(const struct kjit_variant_tensor_argument *tensor, int i, int j, int k) {
  return kjit_variant_at2(tensor, i, j) + kjit_variant_step(tensor, 2, k);
}
KJIT_VARIANT_INLINE long long kjit_variant_at4(const struct kjit_variant_tensor_argument *tensor, int i, int j, int k,
                                               int l) {
  return kjit_variant_at3(tensor, i, j, k) + kjit_variant_step(tensor, 3, l);
}

/* The number of 16 bits. */
KJIT_VARIANT_INLINE float kjit_fp16_of(unsigned bits) {
  return kjit_float_from_half((unsigned short)bits);
}
KJIT_VARIANT_INLINE float kjit_bf16_of(unsigned bits) {
  return kjit_float_from_bits(bits << 16);
}

/* Two functions an element type: KJIT_VARIANT_LOAD(name, result, type in memory, how an element `x` becomes a result).
 */
#define KJIT_VARIANT_LOAD(name, result, memory, value)                                                                 \
  typedef memory kjit_memory_##name;                                                                                   \
  KJIT_VARIANT_INLINE result kjit_of_##name(memory x) {                                                                \
    return value;                                                                                                      \
  }                                                                                                                    \
  KJIT_VARIANT_INLINE result kjit_load_##name(const struct kjit_variant_tensor_argument *tensor, long long at) {       \
    return kjit_of_##name(((const memory *)tensor->data)[at]);                                                         \
  }

KJIT_VARIANT_LOAD(bool, bool, unsigned char, x != 0)
KJIT_VARIANT_LOAD(uint8, int, unsigned char, x)
KJIT_VARIANT_LOAD(int8, int, signed char, x)
KJIT_VARIANT_LOAD(int16, int, short, x)
KJIT_VARIANT_LOAD(int32, int, int, x)
KJIT_VARIANT_LOAD(int64, int, long long, (int)(unsigned)x)
KJIT_VARIANT_LOAD(fp16, kjit_real, unsigned short, (kjit_real)kjit_fp16_of(x))
KJIT_VARIANT_LOAD(bf16, kjit_real, unsigned short, (kjit_real)kjit_bf16_of(x))
KJIT_VARIANT_LOAD(fp32, kjit_real, float, (kjit_real)x)
KJIT_VARIANT_LOAD(fp64, kjit_real, double, (kjit_real)x)

#endif
