/* Operators of the variant language on typed values: which type an operation has, what is converted to it, and what
 * becomes of numbers. Operations on two numbers are done here, so that a text may say 64 * 2 where a divisor is wanted.
 *
 * Threads: nothing is shared. */
#include <inttypes.h>
#include <math.h>

#include "attention/variant/parser.h"
#include "base/error.h"

struct operand operand_of(variant_node_index node, const char *at) {
  return (struct operand){.kind = OPERAND_NODE, .node = node, .at = at};
}

enum variant_type operand_type(const struct parser *parser, const struct operand *operand) {
  if (operand->kind == OPERAND_NUMBER) return TYPE_integer;
  if (operand->kind == OPERAND_FRACTION) return TYPE_real;
  if (operand->kind == OPERAND_TENSOR || !parser->tree->nodes) return TYPE_integer;
  return (enum variant_type)parser->tree->nodes[operand->node].type;
}

static bool is_number(const struct operand *operand) {
  return operand->kind == OPERAND_NUMBER || operand->kind == OPERAND_FRACTION;
}

static double value_of(const struct operand *operand) {
  return operand->kind == OPERAND_NUMBER ? (double)operand->number : operand->fraction;
}

/* -- Numbers ------------------------------------------------------------------------------------------------------ */

/* A number as a scalar of the launch, or as a constant where it must be one or no scalar is left. */
static variant_node_index place_number(struct parser *parser, const struct operand *operand, enum variant_type type) {
  struct variant_slots *const slots = parser->slots;
  const double value = value_of(operand);
  const bool is_plain = value == -1 || value == 0 || value == 1 || value == 2;
  const float real = (float)value;
  union {
    float real;
    uint32_t bits;
  } both = {.real = real};
  const uint32_t bits = type == TYPE_real ? both.bits : (uint32_t)(int32_t)operand->number;
  if (operand->is_constant || is_plain || slots->count == KJIT_VARIANT_SCALARS_MAX)
    return type == TYPE_real ? variant_real(parser->tree, real) : variant_integer(parser->tree, (int32_t)bits);
  slots->bits[slots->count] = bits;
  slots->types[slots->count] = type;
  return variant_scalar(parser->tree, (uint32_t)slots->count++, type);
}

static kjit_status convert_number(struct parser *parser, struct operand *operand, enum variant_type type) {
  if (type == TYPE_truth)
    return parser_refuse(parser, operand->at, "a condition is wanted here, and this is a number: compare it, x != 0");
  if (type == TYPE_integer && operand->kind == OPERAND_FRACTION)
    return parser_refuse(parser, operand->at, "an integer is wanted here: write int(x), which rounds towards zero");
  if (type == TYPE_integer && (operand->number < INT32_MIN || operand->number > INT32_MAX))
    return parser_refuse(parser, operand->at, "the number does not fit 32 bits");
  *operand = operand_of(place_number(parser, operand, type), operand->at);
  return KJIT_OK;
}

kjit_status operand_convert(struct parser *parser, struct operand *operand, enum variant_type type) {
  struct variant_tree *const tree = parser->tree;
  if (operand->kind == OPERAND_TENSOR)
    return parser_refuse(parser, operand->at, "%s has %u axes: write an index for each",
                         parser->scope->tensors[operand->tensor], (unsigned)tree->tensor_ranks[operand->tensor]);
  if (is_number(operand)) return convert_number(parser, operand, type);
  const enum variant_type has = operand_type(parser, operand);
  if (has == type) return KJIT_OK;
  if (type == TYPE_truth)
    return parser_refuse(parser, operand->at, "a condition is wanted here, and this is a number: compare it, x != 0");
  if (has == TYPE_real)
    return parser_refuse(parser, operand->at, "an integer is wanted here: write int(x), which rounds towards zero");
  if (has == TYPE_truth) operand->node = variant_unary(tree, VARIANT_integer_from_truth, operand->node);
  if (type == TYPE_real) operand->node = variant_unary(tree, VARIANT_real_from_integer, operand->node);
  return KJIT_OK;
}

/* The type of an operation on two values: real if one of them is, truth if both are, and integer otherwise. */
kjit_status operands_unify(struct parser *parser, struct operand *a, struct operand *b, enum variant_type *type) {
  const enum variant_type of_a = operand_type(parser, a), of_b = operand_type(parser, b);
  *type = of_a == TYPE_real || of_b == TYPE_real     ? TYPE_real
          : of_a == TYPE_truth && of_b == TYPE_truth ? TYPE_truth
                                                     : TYPE_integer;
  const kjit_status status = operand_convert(parser, a, *type);
  return status == KJIT_OK ? operand_convert(parser, b, *type) : status;
}

/* -- Two numbers --------------------------------------------------------------------------------------------------- */

/* Operators on two written integers. What is false here, such as a comparison or a division by zero, becomes an
 * operation of the kernel or an error of its own later. */
static bool fold_integers(enum binary_kind kind, int64_t a, int64_t b, int64_t *out) {
  switch (kind) {
  case BINARY_ADD:
    return !__builtin_add_overflow(a, b, out);
  case BINARY_SUBTRACT:
    return !__builtin_sub_overflow(a, b, out);
  case BINARY_MULTIPLY:
    return !__builtin_mul_overflow(a, b, out);
  case BINARY_FLOOR_DIVIDE:
    *out = b > 0 ? a / b - (a % b < 0) : 0;
    return b > 0;
  case BINARY_MODULO:
    *out = b > 0 ? a % b + (a % b < 0 ? b : 0) : 0;
    return b > 0;
  case BINARY_LEFT:
    *out = b >= 0 && b < 32 ? (int64_t)((uint64_t)a << b) : 0;
    return b >= 0 && b < 32;
  case BINARY_MINIMUM:
    *out = a < b ? a : b;
    return true;
  case BINARY_MAXIMUM:
    *out = a > b ? a : b;
    return true;
  default:
    return false;
  }
}

static bool fold_reals(enum binary_kind kind, double a, double b, double *out) {
  switch (kind) {
  case BINARY_ADD:
    *out = a + b;
    return true;
  case BINARY_SUBTRACT:
    *out = a - b;
    return true;
  case BINARY_MULTIPLY:
    *out = a * b;
    return true;
  case BINARY_DIVIDE:
    *out = a / b;
    return b != 0;
  case BINARY_POWER:
    *out = pow(a, b);
    return true;
  default:
    return false;
  }
}

/* False: the operation is left to the kernel. */
static bool fold(enum binary_kind kind, struct operand *left, const struct operand *right) {
  if (!is_number(left) || !is_number(right)) return false;
  const bool constant = left->is_constant || right->is_constant;
  if (left->kind == OPERAND_NUMBER && right->kind == OPERAND_NUMBER && kind != BINARY_DIVIDE && kind != BINARY_POWER) {
    int64_t number;
    if (!fold_integers(kind, left->number, right->number, &number)) return false;
    left->number = number;
  } else {
    double fraction;
    if (!fold_reals(kind, value_of(left), value_of(right), &fraction)) return false;
    left->kind = OPERAND_FRACTION;
    left->fraction = fraction;
  }
  left->is_constant = constant;
  return true;
}

/* -- Operations --------------------------------------------------------------------------------------------------- */

/* The operation of each kind on integers, reals and truth values; 0 where there is none. */
static const struct {
  enum variant_operation integer, real, truth;
} operations[] = {
    [BINARY_EQUAL] = {VARIANT_integer_equal, VARIANT_real_equal, VARIANT_truth_equal},
    [BINARY_UNEQUAL] = {VARIANT_integer_unequal, VARIANT_real_unequal, VARIANT_truth_unequal},
    [BINARY_LESS] = {VARIANT_integer_less, VARIANT_real_less, 0},
    [BINARY_LESS_EQUAL] = {VARIANT_integer_less_equal, VARIANT_real_less_equal, 0},
    [BINARY_BIT_OR] = {VARIANT_integer_or, 0, VARIANT_truth_or},
    [BINARY_BIT_XOR] = {VARIANT_integer_xor, 0, VARIANT_truth_unequal},
    [BINARY_BIT_AND] = {VARIANT_integer_and, 0, VARIANT_truth_and},
    [BINARY_LEFT] = {VARIANT_integer_shift_left, 0, 0},
    [BINARY_RIGHT] = {VARIANT_integer_shift_right, 0, 0},
    [BINARY_ADD] = {VARIANT_integer_add, VARIANT_real_add, 0},
    [BINARY_SUBTRACT] = {VARIANT_integer_subtract, VARIANT_real_subtract, 0},
    [BINARY_MULTIPLY] = {VARIANT_integer_multiply, VARIANT_real_multiply, 0},
    [BINARY_FLOOR_DIVIDE] = {VARIANT_integer_divide, VARIANT_real_divide, 0},
    [BINARY_MODULO] = {VARIANT_integer_modulo, VARIANT_real_modulo, 0},
    [BINARY_MINIMUM] = {VARIANT_integer_minimum, VARIANT_real_minimum, 0},
    [BINARY_MAXIMUM] = {VARIANT_integer_maximum, VARIANT_real_maximum, 0},
};

/* Numbers that the compiler and the search for seen blocks must know: divisors, counts of shifts, bit masks. */
static kjit_status keep_constant(struct parser *parser, enum binary_kind kind, struct operand *left,
                                 struct operand *right) {
  const bool is_shift = kind == BINARY_LEFT || kind == BINARY_RIGHT;
  const bool is_division = kind == BINARY_FLOOR_DIVIDE || kind == BINARY_MODULO;
  const bool is_bits = kind == BINARY_BIT_AND || kind == BINARY_BIT_OR || kind == BINARY_BIT_XOR;
  if (is_number(right) && (is_shift || is_bits || is_division)) right->is_constant = true;
  if (is_number(left) && is_bits) left->is_constant = true;
  if (right->kind != OPERAND_NUMBER) return KJIT_OK;
  if (is_division && right->number < 1)
    return parser_refuse(parser, right->at, "a divisor is at least 1, and this is %" PRId64, right->number);
  if (is_shift && (right->number < 0 || right->number > 31))
    return parser_refuse(parser, right->at, "shifts are by 0 to 31, and this is by %" PRId64, right->number);
  return KJIT_OK;
}

/* A quotient of reals. A divisor that is the same for a row becomes a factor, so that its reciprocal is taken once. */
static kjit_status divide(struct parser *parser, struct operand *left, struct operand *right, const char *at) {
  struct variant_tree *const tree = parser->tree;
  if (is_number(right) && value_of(right) != 0) {
    struct operand factor = {.kind = OPERAND_FRACTION, .fraction = 1 / value_of(right), .at = right->at};
    return operand_combine(parser, BINARY_MULTIPLY, left, &factor, at);
  }
  kjit_status status = operand_convert(parser, left, TYPE_real);
  if (status == KJIT_OK) status = operand_convert(parser, right, TYPE_real);
  if (status != KJIT_OK || !tree->nodes) return status;
  const uint16_t varying = USES_SCORE | USES_K;
  if (!(tree->nodes[right->node].uses & varying) && tree->nodes[left->node].uses & varying)
    *left = operand_of(variant_binary(tree, VARIANT_real_multiply, left->node,
                                      variant_binary(tree, VARIANT_real_divide, variant_real(tree, 1), right->node)),
                       at);
  else
    *left = operand_of(variant_binary(tree, VARIANT_real_divide, left->node, right->node), at);
  return KJIT_OK;
}

/* x ** 2 is a product, because a square is the usual case and any other power takes a logarithm and an exponential. */
static kjit_status power(struct parser *parser, struct operand *left, struct operand *right, const char *at) {
  struct variant_tree *const tree = parser->tree;
  const bool is_square = is_number(right) && value_of(right) == 2;
  enum variant_type type = TYPE_real;
  kjit_status status = operand_convert(parser, left, is_square ? operand_type(parser, left) : TYPE_real);
  if (status != KJIT_OK) return status;
  if (is_square) {
    struct operand again = *left;
    return operand_combine(parser, BINARY_MULTIPLY, left, &again, at);
  }
  status = operands_unify(parser, left, right, &type);
  if (status == KJIT_OK) *left = operand_of(variant_binary(tree, VARIANT_real_power, left->node, right->node), at);
  return status;
}

static kjit_status combine_truth(struct parser *parser, enum binary_kind kind, struct operand *left,
                                 struct operand *right, const char *at) {
  kjit_status status = operand_convert(parser, left, TYPE_truth);
  if (status == KJIT_OK) status = operand_convert(parser, right, TYPE_truth);
  if (status == KJIT_OK)
    *left = operand_of(
        variant_binary(parser->tree, kind == BINARY_OR ? VARIANT_truth_or : VARIANT_truth_and, left->node, right->node),
        at);
  return status;
}

/* An operator whose operation depends on the type of both sides: find the type, convert both, and look the operation up
 * in the table above. */
static kjit_status combine_typed(struct parser *parser, enum binary_kind kind, struct operand *left,
                                 struct operand *right, const char *at) {
  struct variant_tree *const tree = parser->tree;
  enum variant_type type;
  kjit_status status = keep_constant(parser, kind, left, right);
  const bool is_bits = kind == BINARY_BIT_AND || kind == BINARY_BIT_OR || kind == BINARY_BIT_XOR;
  if (is_bits && (operand_type(parser, left) == TYPE_truth) != (operand_type(parser, right) == TYPE_truth))
    return parser_refuse(parser, at,
                         "one side is a condition and the other a number: & | ^ bind stronger than "
                         "comparisons, so a comparison beside them needs parentheses");
  if (status == KJIT_OK) status = operands_unify(parser, left, right, &type);
  if (status != KJIT_OK) return status;
  if (type == TYPE_truth && !operations[kind].truth) { /* a condition in arithmetic counts 0 or 1 */
    type = TYPE_integer;
    status = operand_convert(parser, left, type);
    if (status == KJIT_OK) status = operand_convert(parser, right, type);
    if (status != KJIT_OK) return status;
  }
  const enum variant_operation operation = type == TYPE_real    ? operations[kind].real
                                           : type == TYPE_truth ? operations[kind].truth
                                                                : operations[kind].integer;
  if (!operation) return parser_refuse(parser, at, "this operator takes integers: write int(x)");
  variant_node_index node = variant_binary(tree, operation, left->node, right->node);
  if (kind == BINARY_FLOOR_DIVIDE && type == TYPE_real) node = variant_unary(tree, VARIANT_real_floor, node);
  *left = operand_of(node, left->at);
  return KJIT_OK;
}

kjit_status operand_combine(struct parser *parser, enum binary_kind kind, struct operand *left, struct operand *right,
                            const char *at) {
  if (++parser->steps > VARIANT_STEPS_MAX) return parser_refuse(parser, at, VARIANT_TOO_MANY);
  if (fold(kind, left, right)) return KJIT_OK;
  switch (kind) {
  case BINARY_OR:
  case BINARY_AND:
    return combine_truth(parser, kind, left, right, at);
  case BINARY_DIVIDE:
    return divide(parser, left, right, at);
  case BINARY_POWER:
    return power(parser, left, right, at);
  /* a > b is b < a, so that comparisons of one kind are one node and the search for intervals knows two of them instead
   * of four. */
  case BINARY_GREATER:
  case BINARY_GREATER_EQUAL: {
    const struct operand greater = *left;
    const kjit_status status =
        combine_typed(parser, kind == BINARY_GREATER ? BINARY_LESS : BINARY_LESS_EQUAL, right, left, at);
    *left = *right;
    left->at = greater.at;
    return status;
  }
  default:
    return combine_typed(parser, kind, left, right, at);
  }
}

/* The negation is taken in 64 bits without a sign, because -INT64_MIN would overflow; a number that does not fit 32
 * bits is refused when its type is known. */
kjit_status operand_negate(struct parser *parser, struct operand *operand) {
  if (operand->kind == OPERAND_NUMBER) {
    operand->number = (int64_t)(0 - (uint64_t)operand->number);
    return KJIT_OK;
  }
  if (operand->kind == OPERAND_FRACTION) {
    operand->fraction = -operand->fraction;
    return KJIT_OK;
  }
  const enum variant_type type = operand_type(parser, operand) == TYPE_real ? TYPE_real : TYPE_integer;
  const kjit_status status = operand_convert(parser, operand, type);
  if (status == KJIT_OK)
    *operand = operand_of(
        variant_unary(parser->tree, type == TYPE_real ? VARIANT_real_negate : VARIANT_integer_negate, operand->node),
        operand->at);
  return status;
}

kjit_status operand_complement(struct parser *parser, struct operand *operand) {
  const enum variant_type type = operand_type(parser, operand);
  if (operand->kind == OPERAND_NUMBER) {
    operand->number = ~operand->number;
    return KJIT_OK;
  }
  kjit_status status = operand_convert(parser, operand, type == TYPE_real ? TYPE_integer : type);
  if (status == KJIT_OK)
    *operand = operand_of(
        variant_unary(parser->tree, type == TYPE_truth ? VARIANT_truth_not : VARIANT_integer_complement, operand->node),
        operand->at);
  return status;
}
