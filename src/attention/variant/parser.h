/* What the files of the parser share. */
#ifndef KJIT_ATTENTION_VARIANT_PARSER_H
#define KJIT_ATTENTION_VARIANT_PARSER_H

#include "attention/variant/parse.h"
#include "family/expression/expression_token.h"

/* Nothing is done more often than this for one text, however its any() and all() nest. */
#define VARIANT_STEPS_MAX 20000
#define VARIANT_TOO_MANY  "the text has more than 1000 operations"

/* A value on the way to a node. A number has no node yet, because what stands beside it decides its type, and whether
 * it is a constant. */
struct operand {
  enum operand_kind { OPERAND_NODE, OPERAND_NUMBER, OPERAND_FRACTION, OPERAND_TENSOR } kind;
  variant_node_index node;
  int64_t number;
  double fraction;
  bool is_constant; /* a number that must not become a scalar */
  uint32_t tensor;  /* one that has fewer indices than axes so far */
  variant_node_index indices[4];
  size_t index_count;
  const char *at; /* in the text, for messages */
};

struct binding {
  const char *name;
  size_t bytes;
  struct operand value;
};

struct parser {
  struct tokens tokens;
  const struct variant_scope *scope;
  struct variant_tree *tree;
  struct variant_slots *slots;
  struct binding *bindings; /* of `let` and any() */
  size_t binding_count, binding_capacity;
  size_t nesting, steps;
  enum variant_type wanted;
  kjit_error *error;
};

enum binary_kind {
  BINARY_OR,
  BINARY_AND,
  BINARY_EQUAL,
  BINARY_UNEQUAL,
  BINARY_LESS,
  BINARY_LESS_EQUAL,
  BINARY_GREATER,
  BINARY_GREATER_EQUAL,
  BINARY_BIT_OR,
  BINARY_BIT_XOR,
  BINARY_BIT_AND,
  BINARY_LEFT,
  BINARY_RIGHT,
  BINARY_ADD,
  BINARY_SUBTRACT,
  BINARY_MULTIPLY,
  BINARY_DIVIDE,
  BINARY_FLOOR_DIVIDE,
  BINARY_MODULO,
  BINARY_POWER,
  BINARY_MINIMUM,
  BINARY_MAXIMUM,
};

kjit_status parser_refuse(const struct parser *parser, const char *at, const char *format, ...) KJIT_PRINTF(3, 4);

/* -- parse_names.c -- */

/* What a name stands for. KJIT_ERR_PARSE for one that is not known, with what is meant or written instead. */
kjit_status name_resolve(struct parser *parser, const struct token *name, struct operand *out);
kjit_status name_unknown(const struct parser *parser, const struct token *name);
/* Is it a word of other languages, for which this one has another? */
bool name_is_foreign(const struct token *name);
/* Give a value a name; KJIT_ERR_PARSE where the name is taken. */
kjit_status name_bind(struct parser *parser, const struct token *name, const struct operand *value);

/* -- parse_operators.c -- */

struct operand operand_of(variant_node_index node, const char *at);
/* The type that an operand has, or takes when nothing else decides: a number is an integer. */
enum variant_type operand_type(const struct parser *parser, const struct operand *operand);
/* As a node of this type. Truth becomes 0 and 1, integers become real; nothing else is converted by itself. */
kjit_status operand_convert(struct parser *parser, struct operand *operand, enum variant_type type);
/* Both to the type that an operation on them has. */
kjit_status operands_unify(struct parser *parser, struct operand *a, struct operand *b, enum variant_type *type);
/* left = left <operator> right */
kjit_status operand_combine(struct parser *parser, enum binary_kind kind, struct operand *left, struct operand *right,
                            const char *at);
kjit_status operand_negate(struct parser *parser, struct operand *operand);
kjit_status operand_complement(struct parser *parser, struct operand *operand);

/* -- parse_functions.c -- */

#define FUNCTION_ARGUMENTS_MAX 16

/* NULL: no function has this name. */
const struct function *function_find(const struct token *name);
kjit_status function_call(struct parser *parser, const struct function *function, struct operand *arguments,
                          size_t count, struct operand *out, const char *at);
/* KJIT_ERR_PARSE at a name that no function has: the nearest one, or what functions there are. */
kjit_status function_unknown(const struct parser *parser, const struct token *name);
/* The names of all functions, in order; NULL behind the last. */
const char *function_name(size_t index);

#endif
