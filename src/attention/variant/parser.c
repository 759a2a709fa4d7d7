/* The parser of variant texts: recursive descent with a table of precedences, which are those of the integer
 * expressions of families. A value becomes a node as soon as its type is known.
 *
 * any(i, 8, value) is read eight times from the same place, with i = 0 … 7.
 *
 * Threads: nothing is shared. */
#include "attention/variant/parser.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

#define UNROLLED_MAX 32

static const char *const signs[] = {"**", "//", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+",
                                    "-",  "*",  "/",  "%",  "(",  ")",  "[",  "]",  "<",  ">",  "!",
                                    "~",  "&",  "|",  "^",  "?",  ":",  ",",  ";",  "="};
static const struct token_dialect dialect = {signs, sizeof signs / sizeof *signs, VARIANT_TEXT_MAX, true};

kjit_status parser_refuse(const struct parser *parser, const char *at, const char *format, ...) {
  const struct expression_source *const source = parser->tokens.source;
  char why[256];
  va_list arguments;
  if (parser->tree->failed) return error_no_memory(parser->error);
  if (parser->tree->full) /* nodes that could not be added have no types, so another message might be wrong */
    return expression_refuse(source, (size_t)(at - source->text), KJIT_ERR_PARSE, parser->error, VARIANT_TOO_MANY);
  va_start(arguments, format);
  (void)vsnprintf(why, sizeof why, format, arguments);
  va_end(arguments);
  return expression_refuse(source, (size_t)(at - source->text), KJIT_ERR_PARSE, parser->error, "%s", why);
}

/* -- Operands ----------------------------------------------------------------------------------------------------- */

static kjit_status parse_value(struct parser *parser, struct operand *out);
static kjit_status parse_unary(struct parser *parser, struct operand *out);

static bool at(const struct parser *parser, const char *spelling) {
  return expression_token_is(&parser->tokens.current, spelling);
}

static kjit_status expect(struct parser *parser, const char *sign) {
  char expected[8];
  if (at(parser, sign)) return tokens_advance(&parser->tokens);
  (void)snprintf(expected, sizeof expected, "\"%s\"", sign);
  return tokens_unexpected(&parser->tokens, expected);
}

/* any(name, count, value) and all(…): the current word is behind the "(". */
static kjit_status parse_unrolled(struct parser *parser, bool any, const char *start, struct operand *out) {
  const struct token name = parser->tokens.current;
  struct operand index = {.kind = OPERAND_NUMBER, .is_constant = true, .at = name.start};
  kjit_status status = name_bind(parser, &name, &index);
  if (status == KJIT_OK) status = tokens_advance(&parser->tokens);
  if (status == KJIT_OK) status = expect(parser, ",");
  const struct token count = parser->tokens.current;
  if (status == KJIT_OK && (count.kind != TOKEN_NUMBER || count.number < 1 || count.number > UNROLLED_MAX))
    return parser_refuse(parser, count.start, "any(i, count, value) goes over 1 to %d values of i", UNROLLED_MAX);
  if (status == KJIT_OK) status = tokens_advance(&parser->tokens);
  if (status == KJIT_OK) status = expect(parser, ",");
  if (status != KJIT_OK) return status;
  const struct tokens again = parser->tokens;
  const size_t binding = parser->binding_count - 1;
  *out = operand_of(variant_truth(parser->tree, !any), start);
  for (int64_t i = 0; i < count.number && status == KJIT_OK; i++) {
    struct operand value;
    parser->tokens = again;
    parser->bindings[binding].value.number = i;
    status = parse_value(parser, &value);
    if (status == KJIT_OK) status = operand_combine(parser, any ? BINARY_OR : BINARY_AND, out, &value, start);
  }
  parser->binding_count = binding;
  return status == KJIT_OK ? expect(parser, ")") : status;
}

/* A name in front of "(". any() and all() come first, because their first argument is a name that is bound there and no
 * value. */
static kjit_status parse_call(struct parser *parser, const struct token *name, struct operand *out) {
  const struct function *const function = function_find(name);
  struct operand arguments[FUNCTION_ARGUMENTS_MAX];
  size_t count = 0;
  kjit_status status = expect(parser, "(");
  if (status != KJIT_OK) return status;
  if (expression_token_is(name, "any") || expression_token_is(name, "all"))
    return parse_unrolled(parser, expression_token_is(name, "any"), name->start, out);
  if (!function) return name_is_foreign(name) ? name_unknown(parser, name) : function_unknown(parser, name);
  for (bool more = true; more && status == KJIT_OK;) {
    if (count == FUNCTION_ARGUMENTS_MAX)
      return parser_refuse(parser, name->start, "a function takes at most %d values", FUNCTION_ARGUMENTS_MAX);
    status = parse_value(parser, &arguments[count++]);
    more = status == KJIT_OK && at(parser, ",");
    if (more) status = tokens_advance(&parser->tokens);
  }
  if (status == KJIT_OK) status = expect(parser, ")");
  return status == KJIT_OK ? function_call(parser, function, arguments, count, out, name->start) : status;
}

static kjit_status parse_name(struct parser *parser, struct operand *out) {
  const struct token name = parser->tokens.current;
  const kjit_status status = tokens_advance(&parser->tokens);
  if (status != KJIT_OK) return status;
  if (!at(parser, "(")) return name_resolve(parser, &name, out);
  return parse_call(parser, &name, out);
}

/* One index of a tensor: the tensor becomes its element with the last one. */
static kjit_status add_index(struct parser *parser, struct operand *tensor, struct operand *index) {
  const char *const name = tensor->kind == OPERAND_TENSOR ? parser->scope->tensors[tensor->tensor] : NULL;
  if (!name) return parser_refuse(parser, index->at, "what stands in front of [ has no axis left");
  if (index->kind == OPERAND_NUMBER && index->number < 0)
    return parser_refuse(parser, index->at, "indices count from 0, and one below is read as 0");
  const kjit_status status = operand_convert(parser, index, TYPE_integer);
  if (status != KJIT_OK) return status;
  tensor->indices[tensor->index_count++] = index->node;
  if (tensor->index_count == parser->tree->tensor_ranks[tensor->tensor])
    *tensor = operand_of(variant_load(parser->tree, tensor->tensor, tensor->indices), tensor->at);
  return KJIT_OK;
}

static kjit_status parse_indices(struct parser *parser, struct operand *out) {
  kjit_status status = KJIT_OK;
  while (status == KJIT_OK && at(parser, "[")) {
    do {
      struct operand index;
      status = tokens_advance(&parser->tokens);
      if (status == KJIT_OK) status = parse_value(parser, &index);
      if (status == KJIT_OK) status = add_index(parser, out, &index);
    } while (status == KJIT_OK && at(parser, ","));
    if (status == KJIT_OK) status = expect(parser, "]");
  }
  return status;
}

/* A number, a name, a call or a value in parentheses, with the indices behind it. Steps are counted here, so that
 * nested any() cannot keep the parser busy for longer than VARIANT_STEPS_MAX allows. */
static kjit_status parse_operand(struct parser *parser, struct operand *out) {
  const struct token token = parser->tokens.current;
  const bool is_operator = at(parser, "and") || at(parser, "or") || at(parser, "not") || at(parser, "let");
  kjit_status status;
  if (++parser->steps > VARIANT_STEPS_MAX || !variant_tree_is_whole(parser->tree))
    return parser_refuse(parser, token.start, VARIANT_TOO_MANY);
  if (token.kind == TOKEN_NUMBER || token.kind == TOKEN_FRACTION) {
    *out = (struct operand){.kind = token.kind == TOKEN_NUMBER ? OPERAND_NUMBER : OPERAND_FRACTION,
                            .number = token.number,
                            .fraction = token.fraction,
                            .at = token.start};
    status = tokens_advance(&parser->tokens);
  } else if (token.kind == TOKEN_NAME && !is_operator) {
    status = parse_name(parser, out);
  } else if (at(parser, "(")) {
    status = tokens_advance(&parser->tokens);
    if (status == KJIT_OK) status = parse_value(parser, out);
    if (status == KJIT_OK) status = expect(parser, ")");
  } else {
    return tokens_unexpected(&parser->tokens, "a value");
  }
  return status == KJIT_OK ? parse_indices(parser, out) : status;
}

/* -- Operators ---------------------------------------------------------------------------------------------------- */

enum { LEVEL_OR = 1, LEVEL_AND, LEVEL_COMPARISON, LEVEL_UNARY = 10 };

static const struct binary {
  const char *sign, *word;
  enum binary_kind kind;
  int level;
} binaries[] = {
    {"||", "or", BINARY_OR, LEVEL_OR},
    {"&&", "and", BINARY_AND, LEVEL_AND},
    {"==", "", BINARY_EQUAL, LEVEL_COMPARISON},
    {"!=", "", BINARY_UNEQUAL, LEVEL_COMPARISON},
    {"<=", "", BINARY_LESS_EQUAL, LEVEL_COMPARISON},
    {">=", "", BINARY_GREATER_EQUAL, LEVEL_COMPARISON},
    {"<", "", BINARY_LESS, LEVEL_COMPARISON},
    {">", "", BINARY_GREATER, LEVEL_COMPARISON},
    {"|", "", BINARY_BIT_OR, 4},
    {"^", "", BINARY_BIT_XOR, 5},
    {"&", "", BINARY_BIT_AND, 6},
    {"<<", "", BINARY_LEFT, 7},
    {">>", "", BINARY_RIGHT, 7},
    {"+", "", BINARY_ADD, 8},
    {"-", "", BINARY_SUBTRACT, 8},
    {"*", "", BINARY_MULTIPLY, 9},
    {"/", "", BINARY_DIVIDE, 9},
    {"//", "", BINARY_FLOOR_DIVIDE, 9},
    {"%", "", BINARY_MODULO, 9},
};

static const struct binary *find_binary(const struct parser *parser, int level) {
  for (size_t i = 0; i < sizeof binaries / sizeof *binaries; i++) {
    const struct binary *const binary = &binaries[i];
    if (binary->level == level && (at(parser, binary->sign) || (*binary->word && at(parser, binary->word))))
      return binary;
  }
  return NULL;
}

static kjit_status enter(struct parser *parser) {
  if (++parser->nesting <= VARIANT_NESTING_MAX) return KJIT_OK;
  return parser_refuse(parser, parser->tokens.current.start,
                       "the text nests more than %d deep, parentheses counted twice: name parts with let",
                       VARIANT_NESTING_MAX);
}

/* a ** b binds stronger than a sign in front of it, and groups from the right. */
static kjit_status parse_power(struct parser *parser, struct operand *out) {
  kjit_status status = parse_operand(parser, out);
  const char *const sign = parser->tokens.current.start;
  struct operand right;
  if (status != KJIT_OK || !at(parser, "**")) return status;
  status = tokens_advance(&parser->tokens);
  if (status == KJIT_OK) status = parse_unary(parser, &right);
  return status == KJIT_OK ? operand_combine(parser, BINARY_POWER, out, &right, sign) : status;
}

static kjit_status parse_unary(struct parser *parser, struct operand *out) {
  const bool minus = at(parser, "-"), plus = at(parser, "+"), complement = at(parser, "~") || at(parser, "!");
  kjit_status status = enter(parser);
  if (status != KJIT_OK) return status;
  if (minus || plus || complement) {
    const char *const start = parser->tokens.current.start;
    status = tokens_advance(&parser->tokens);
    if (status == KJIT_OK) status = parse_unary(parser, out);
    if (status == KJIT_OK) out->at = start;
    if (status == KJIT_OK && minus) status = operand_negate(parser, out);
    if (status == KJIT_OK && complement) status = operand_complement(parser, out);
  } else {
    status = parse_power(parser, out);
  }
  parser->nesting--;
  return status;
}

static kjit_status parse_binary(struct parser *parser, int level, struct operand *out);

/* "not" in front of a comparison; what is weaker than a comparison does not belong to it. */
static kjit_status parse_not(struct parser *parser, struct operand *out) {
  kjit_status status = enter(parser);
  const char *const start = parser->tokens.current.start;
  if (status == KJIT_OK) status = tokens_advance(&parser->tokens);
  if (status == KJIT_OK) status = parse_binary(parser, LEVEL_COMPARISON, out);
  if (status == KJIT_OK) status = operand_convert(parser, out, TYPE_truth);
  if (status == KJIT_OK) *out = operand_of(variant_unary(parser->tree, VARIANT_truth_not, out->node), start);
  parser->nesting--;
  return status;
}

/* Operators of one level and, between them, values of the next; operators of equal rank group from the left. Signs and
 * powers are the last level. */
static kjit_status parse_binary(struct parser *parser, int level, struct operand *out) {
  if (level == LEVEL_UNARY) return parse_unary(parser, out);
  if (level == LEVEL_COMPARISON && at(parser, "not")) return parse_not(parser, out);
  kjit_status status = parse_binary(parser, level + 1, out);
  const struct binary *binary = status == KJIT_OK ? find_binary(parser, level) : NULL;
  while (binary) {
    const char *const sign = parser->tokens.current.start;
    struct operand right;
    status = tokens_advance(&parser->tokens);
    if (status == KJIT_OK) status = parse_binary(parser, level + 1, &right);
    if (status == KJIT_OK) status = operand_combine(parser, binary->kind, out, &right, sign);
    if (status != KJIT_OK) return status;
    binary = find_binary(parser, level);
    if (binary && level == LEVEL_COMPARISON)
      return parser_refuse(parser, parser->tokens.current.start,
                           "comparisons do not chain: write a < b and b < c; & and | bind stronger than comparisons");
  }
  return status;
}

/* condition ? one : other */
static kjit_status parse_value(struct parser *parser, struct operand *out) {
  struct operand arguments[3];
  kjit_status status = enter(parser);
  if (status == KJIT_OK) status = parse_binary(parser, LEVEL_OR, out);
  const struct token mark = parser->tokens.current;
  if (status == KJIT_OK && at(parser, "?")) {
    static const struct token where = {.kind = TOKEN_NAME, .start = "where", .bytes = 5};
    arguments[0] = *out;
    status = tokens_advance(&parser->tokens);
    if (status == KJIT_OK) status = parse_value(parser, &arguments[1]);
    if (status == KJIT_OK) status = expect(parser, ":");
    if (status == KJIT_OK) status = parse_value(parser, &arguments[2]);
    if (status == KJIT_OK) status = function_call(parser, function_find(&where), arguments, 3, out, mark.start);
  }
  parser->nesting--;
  return status;
}

/* let name = value; */
static kjit_status parse_let(struct parser *parser) {
  struct operand value;
  kjit_status status = tokens_advance(&parser->tokens);
  const struct token name = parser->tokens.current;
  if (status == KJIT_OK && name.kind != TOKEN_NAME) status = tokens_unexpected(&parser->tokens, "a name behind let");
  if (status == KJIT_OK) status = tokens_advance(&parser->tokens);
  if (status == KJIT_OK) status = expect(parser, "=");
  if (status == KJIT_OK) status = parse_value(parser, &value);
  if (status == KJIT_OK) status = name_bind(parser, &name, &value);
  return status == KJIT_OK ? expect(parser, ";") : status;
}

/* let name = value; ... and then the value of the whole text, which must have the wanted type. */
kjit_status variant_parse(struct variant_tree *tree, struct variant_slots *slots, const struct variant_scope *scope,
                          const struct expression_source *source, enum variant_type wanted, variant_node_index *out,
                          kjit_error *error) {
  struct parser parser = {.scope = scope, .tree = tree, .slots = slots, .wanted = wanted, .error = error};
  struct operand value;
  kjit_status status = tokens_begin(&parser.tokens, &dialect, source, error);
  while (status == KJIT_OK && at(&parser, "let"))
    status = parse_let(&parser);
  if (status == KJIT_OK) status = parse_value(&parser, &value);
  if (status == KJIT_OK && parser.tokens.current.kind != TOKEN_END)
    status = tokens_unexpected(&parser.tokens, "an operator or the end");
  if (status == KJIT_OK && wanted == TYPE_truth && operand_type(&parser, &value) != TYPE_truth)
    status = parser_refuse(&parser, source->text, "a mask is a condition, true where the key is seen: q >= k");
  if (status == KJIT_OK && wanted == TYPE_real && operand_type(&parser, &value) == TYPE_truth)
    status = parser_refuse(&parser, source->text, "a score is a number; a condition belongs into the mask");
  if (status == KJIT_OK) status = operand_convert(&parser, &value, wanted);
  if (status == KJIT_OK && tree->full) status = parser_refuse(&parser, source->text, VARIANT_TOO_MANY);
  if (status == KJIT_OK && tree->failed) status = error_no_memory(error);
  if (status == KJIT_OK) *out = value.node;
  mem_free(tree->mem, parser.bindings);
  return status;
}
