/* The operations of the variant language, in one table. Each row is: its name, what it gives, what it takes, and how
 * the language spells it. Operation `integer_add` is kjit_integer_add() on values and kjit_range_integer_add() on
 * ranges (kernel_src/kjit/attention). */
#ifndef KJIT_ATTENTION_VARIANT_OPERATIONS_H
#define KJIT_ATTENTION_VARIANT_OPERATIONS_H

/* One operand. The word is the function's name in the language, or the sign in front. */
#define VARIANT_UNARY(X)                                                                                               \
  X(integer_negate, integer, integer, "-")                                                                             \
  X(integer_absolute, integer, integer, "abs")                                                                         \
  X(integer_complement, integer, integer, "~")                                                                         \
  X(integer_from_truth, integer, truth, "int")                                                                         \
  X(integer_from_real, integer, real, "int")                                                                           \
  X(truth_not, truth, truth, "~")                                                                                      \
  X(real_from_integer, real, integer, "float")                                                                         \
  X(real_negate, real, real, "-")                                                                                      \
  X(real_absolute, real, real, "abs")                                                                                  \
  X(real_floor, real, real, "floor")

/* One operand, of whose range nothing is said. */
#define VARIANT_UNARY_OPAQUE(X)                                                                                        \
  X(real_sqrt, real, real, "sqrt")                                                                                     \
  X(real_exp, real, real, "exp")                                                                                       \
  X(real_exp2, real, real, "exp2")                                                                                     \
  X(real_log, real, real, "log")                                                                                       \
  X(real_log2, real, real, "log2")                                                                                     \
  X(real_tanh, real, real, "tanh")                                                                                     \
  X(real_tanh_exact, real, real, "tanh_exact")                                                                         \
  X(real_sigmoid, real, real, "sigmoid")                                                                               \
  X(real_erf, real, real, "erf")

/* Two operands. */
#define VARIANT_BINARY(X)                                                                                              \
  X(integer_add, integer, integer, "+")                                                                                \
  X(integer_subtract, integer, integer, "-")                                                                           \
  X(integer_multiply, integer, integer, "*")                                                                           \
  X(integer_divide, integer, integer, "//")                                                                            \
  X(integer_modulo, integer, integer, "%")                                                                             \
  X(integer_minimum, integer, integer, "min")                                                                          \
  X(integer_maximum, integer, integer, "max")                                                                          \
  X(integer_and, integer, integer, "&")                                                                                \
  X(integer_or, integer, integer, "|")                                                                                 \
  X(integer_xor, integer, integer, "^")                                                                                \
  X(integer_shift_left, integer, integer, "<<")                                                                        \
  X(integer_shift_right, integer, integer, ">>")                                                                       \
  X(integer_less, truth, integer, "<")                                                                                 \
  X(integer_less_equal, truth, integer, "<=")                                                                          \
  X(integer_equal, truth, integer, "==")                                                                               \
  X(integer_unequal, truth, integer, "!=")                                                                             \
  X(truth_and, truth, truth, "&")                                                                                      \
  X(truth_or, truth, truth, "|")                                                                                       \
  X(truth_equal, truth, truth, "==")                                                                                   \
  X(truth_unequal, truth, truth, "!=")                                                                                 \
  X(real_add, real, real, "+")                                                                                         \
  X(real_subtract, real, real, "-")                                                                                    \
  X(real_multiply, real, real, "*")                                                                                    \
  X(real_minimum, real, real, "min")                                                                                   \
  X(real_maximum, real, real, "max")                                                                                   \
  X(real_less, truth, real, "<")                                                                                       \
  X(real_less_equal, truth, real, "<=")                                                                                \
  X(real_equal, truth, real, "==")                                                                                     \
  X(real_unequal, truth, real, "!=")

#define VARIANT_BINARY_OPAQUE(X)                                                                                       \
  X(real_divide, real, real, "/")                                                                                      \
  X(real_modulo, real, real, "%")                                                                                      \
  X(real_power, real, real, "pow")

/* A condition and two values. */
#define VARIANT_WHERE(X)                                                                                               \
  X(integer_where, integer, integer, "where")                                                                          \
  X(truth_where, truth, truth, "where")                                                                                \
  X(real_where, real, real, "where")

/* What bounds of row intervals need besides; nothing of it is in the language. */
#define VARIANT_WIDE_UNARY(X)                                                                                          \
  X(wide_from_integer, wide, integer, "")                                                                              \
  X(integer_from_wide, integer, wide, "")
#define VARIANT_WIDE_BINARY(X)                                                                                         \
  X(wide_add, wide, wide, "")                                                                                          \
  X(wide_subtract, wide, wide, "")                                                                                     \
  X(wide_multiply, wide, wide, "")                                                                                     \
  X(wide_less, truth, wide, "")

/* The rows of all lists above, with the number of operands. */
#define VARIANT_OPERATIONS_OF(UNARY, BINARY, WHERE)                                                                    \
  VARIANT_UNARY(UNARY)                                                                                                 \
  VARIANT_UNARY_OPAQUE(UNARY)                                                                                          \
  VARIANT_WIDE_UNARY(UNARY)                                                                                            \
  VARIANT_BINARY(BINARY)                                                                                               \
  VARIANT_BINARY_OPAQUE(BINARY)                                                                                        \
  VARIANT_WIDE_BINARY(BINARY)                                                                                          \
  VARIANT_WHERE(WHERE)

enum variant_operation {
  VARIANT_CONSTANT, /* its bits */
  VARIANT_SCALAR,   /* the number of its slot */
  VARIANT_INPUT,    /* enum variant_input */
  VARIANT_LOAD,     /* the number of the tensor; the operands are the indices */
#define ROW(name, result, operand, word) VARIANT_##name,
  VARIANT_OPERATIONS_OF(ROW, ROW, ROW)
#undef ROW
      VARIANT_OPERATION_COUNT
};

#endif
