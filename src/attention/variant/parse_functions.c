/* The functions of the variant language, by name, and the nodes that they become.
 *
 * Threads: nothing is shared. */
#include "attention/variant/parser.h"

#include <stdio.h>

#include "base/nearest.h"

enum function_kind {
  FUNCTION_REAL,    /* one real number to one: the operation says which */
  FUNCTION_EXTREME, /* min and max of several */
  FUNCTION_WHERE,
  FUNCTION_CLAMP,
  FUNCTION_ABS,
  FUNCTION_POW,
  FUNCTION_RELU,
  FUNCTION_GELU,
  FUNCTION_RSQRT,
  FUNCTION_INT,
  FUNCTION_FLOAT,
  FUNCTION_BOOL,
};

struct function {
  const char *name;
  enum function_kind kind;
  int which; /* enum variant_operation, or enum binary_kind */
  size_t least, most;
};

static const struct function functions[] = {
    {"where", FUNCTION_WHERE, 0, 3, 3},
    {"min", FUNCTION_EXTREME, BINARY_MINIMUM, 2, FUNCTION_ARGUMENTS_MAX},
    {"max", FUNCTION_EXTREME, BINARY_MAXIMUM, 2, FUNCTION_ARGUMENTS_MAX},
    {"clamp", FUNCTION_CLAMP, 0, 3, 3},
    {"abs", FUNCTION_ABS, 0, 1, 1},
    {"pow", FUNCTION_POW, 0, 2, 2},
    {"exp", FUNCTION_REAL, VARIANT_real_exp, 1, 1},
    {"exp2", FUNCTION_REAL, VARIANT_real_exp2, 1, 1},
    {"log", FUNCTION_REAL, VARIANT_real_log, 1, 1},
    {"log2", FUNCTION_REAL, VARIANT_real_log2, 1, 1},
    {"tanh", FUNCTION_REAL, VARIANT_real_tanh, 1, 1},
    {"tanh_exact", FUNCTION_REAL, VARIANT_real_tanh_exact, 1, 1},
    {"sigmoid", FUNCTION_REAL, VARIANT_real_sigmoid, 1, 1},
    {"erf", FUNCTION_REAL, VARIANT_real_erf, 1, 1},
    {"sqrt", FUNCTION_REAL, VARIANT_real_sqrt, 1, 1},
    {"floor", FUNCTION_REAL, VARIANT_real_floor, 1, 1},
    {"rsqrt", FUNCTION_RSQRT, 0, 1, 1},
    {"relu", FUNCTION_RELU, 0, 1, 1},
    {"gelu", FUNCTION_GELU, 0, 1, 1},
    {"int", FUNCTION_INT, 0, 1, 1},
    {"float", FUNCTION_FLOAT, 0, 1, 1},
    {"bool", FUNCTION_BOOL, 0, 1, 1},
};

#define FUNCTION_COUNT (sizeof functions / sizeof *functions)

const struct function *function_find(const struct token *name) {
  for (size_t i = 0; i < FUNCTION_COUNT; i++)
    if (expression_token_is(name, functions[i].name)) return &functions[i];
  return NULL;
}

/* any() and all() are the parser's own, because their first argument is no value. */
kjit_status function_unknown(const struct parser *parser, const struct token *name) {
  char known[200] = "";
  struct nearest nearest;
  nearest_begin(&nearest, name->start, name->bytes);
  for (size_t i = 0, at = 0; i < FUNCTION_COUNT && at < sizeof known; i++) {
    nearest_offer(&nearest, functions[i].name);
    at += (size_t)snprintf(known + at, sizeof known - at, "%s, ", functions[i].name);
  }
  const int shown = name->bytes < 40 ? (int)name->bytes : 40;
  if (nearest.best)
    return parser_refuse(parser, name->start, "no function is called \"%.*s\": did you mean %s?", shown, name->start,
                         nearest.best);
  return parser_refuse(parser, name->start, "no function is called \"%.*s\": there are %sany, all", shown, name->start,
                       known);
}

const char *function_name(size_t index) {
  return index < FUNCTION_COUNT ? functions[index].name : NULL;
}

/* Both values get one type, because a node has one; a number beside a real value becomes real, as in the operators. */
static kjit_status call_where(struct parser *parser, struct operand *arguments, struct operand *out, const char *at) {
  enum variant_type type;
  kjit_status status = operand_convert(parser, &arguments[0], TYPE_truth);
  if (status == KJIT_OK) status = operands_unify(parser, &arguments[1], &arguments[2], &type);
  if (status == KJIT_OK)
    *out = operand_of(variant_where(parser->tree, arguments[0].node, arguments[1].node, arguments[2].node), at);
  return status;
}

static kjit_status call_abs(struct parser *parser, struct operand *argument, struct operand *out, const char *at) {
  const enum variant_type type = operand_type(parser, argument) == TYPE_real ? TYPE_real : TYPE_integer;
  const kjit_status status = operand_convert(parser, argument, type);
  if (status == KJIT_OK)
    *out = operand_of(variant_unary(parser->tree, type == TYPE_real ? VARIANT_real_absolute : VARIANT_integer_absolute,
                                    argument->node),
                      at);
  return status;
}

/* x != 0, which a condition is already. A written number is decided here, since otherwise `bool(1)` would become a
 * scalar and a comparison. */
static kjit_status call_bool(struct parser *parser, struct operand *argument, struct operand *out, const char *at) {
  struct operand zero = {.kind = OPERAND_NUMBER, .at = at};
  *out = *argument;
  if (argument->kind == OPERAND_NUMBER) {
    *out = operand_of(variant_truth(parser->tree, argument->number != 0), at);
    return KJIT_OK;
  }
  if (operand_type(parser, argument) == TYPE_truth) return operand_convert(parser, out, TYPE_truth);
  return operand_combine(parser, BINARY_UNEQUAL, out, &zero, at);
}

/* Only a real value needs an operation: it is rounded towards zero. Truth becomes 0 or 1 by conversion. */
static kjit_status call_int(struct parser *parser, struct operand *argument, struct operand *out, const char *at) {
  *out = *argument;
  if (operand_type(parser, out) != TYPE_real) return operand_convert(parser, out, TYPE_integer);
  const kjit_status status = operand_convert(parser, out, TYPE_real);
  if (status == KJIT_OK) *out = operand_of(variant_unary(parser->tree, VARIANT_integer_from_real, out->node), at);
  return status;
}

/* relu, gelu and rsqrt are made of other operations; the argument is real. */
static variant_node_index compose(struct variant_tree *tree, enum function_kind kind, variant_node_index x) {
  if (kind == FUNCTION_RELU) return variant_binary(tree, VARIANT_real_maximum, x, variant_real(tree, 0));
  if (kind == FUNCTION_RSQRT)
    return variant_binary(tree, VARIANT_real_divide, variant_real(tree, 1), variant_unary(tree, VARIANT_real_sqrt, x));
  const variant_node_index scaled =
      variant_binary(tree, VARIANT_real_multiply, x, variant_real(tree, 0.70710678118654752f));
  const variant_node_index cumulative =
      variant_binary(tree, VARIANT_real_add, variant_real(tree, 1), variant_unary(tree, VARIANT_real_erf, scaled));
  return variant_binary(tree, VARIANT_real_multiply,
                        variant_binary(tree, VARIANT_real_multiply, x, variant_real(tree, 0.5f)), cumulative);
}

/* Functions of one real number. float(x) is the conversion alone, so it adds no node. */
static kjit_status call_real(struct parser *parser, const struct function *function, struct operand *argument,
                             struct operand *out, const char *at) {
  struct variant_tree *const tree = parser->tree;
  const kjit_status status = operand_convert(parser, argument, TYPE_real);
  if (status != KJIT_OK) return status;
  variant_node_index node = argument->node;
  if (function->kind == FUNCTION_REAL)
    node = variant_unary(tree, (enum variant_operation)function->which, node);
  else if (function->kind != FUNCTION_FLOAT)
    node = compose(tree, function->kind, node);
  *out = operand_of(node, at);
  return KJIT_OK;
}

kjit_status function_call(struct parser *parser, const struct function *function, struct operand *arguments,
                          size_t count, struct operand *out, const char *at) {
  kjit_status status = KJIT_OK;
  if (count < function->least || count > function->most)
    return parser_refuse(parser, at, "%s takes %zu%s, and here are %zu", function->name, function->least,
                         function->most > function->least ? " to 16 values"
                         : function->least == 1           ? " value"
                                                          : " values",
                         count);
  switch (function->kind) {
  case FUNCTION_WHERE:
    return call_where(parser, arguments, out, at);
  case FUNCTION_ABS:
    return call_abs(parser, arguments, out, at);
  case FUNCTION_INT:
    return call_int(parser, arguments, out, at);
  case FUNCTION_BOOL:
    return call_bool(parser, arguments, out, at);
  case FUNCTION_CLAMP:
    *out = arguments[0];
    status = operand_combine(parser, BINARY_MAXIMUM, out, &arguments[1], at);
    return status == KJIT_OK ? operand_combine(parser, BINARY_MINIMUM, out, &arguments[2], at) : status;
  case FUNCTION_EXTREME:
    *out = arguments[0];
    for (size_t i = 1; i < count && status == KJIT_OK; i++)
      status = operand_combine(parser, (enum binary_kind)function->which, out, &arguments[i], at);
    return status;
  case FUNCTION_POW:
    *out = arguments[0];
    return operand_combine(parser, BINARY_POWER, out, &arguments[1], at);
  default:
    return call_real(parser, function, arguments, out, at);
  }
}
