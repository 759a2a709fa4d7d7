/* The parser of integer expressions: recursive descent with a table of precedences. It emits the steps of
 * expression_step.h as it reads, and counts how deep the stack will get, so that the machine needs no checks.
 *
 * Threads: nothing is shared. */
#include "family/expression/expression.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "family/element.h"
#include "family/expression/expression_names.h"
#include "family/expression/expression_step.h"
#include "family/expression/expression_token.h"

struct parser {
  struct tokens tokens;
  const struct expression_scope *scope;
  struct expression uses; /* masks of the names met */
  struct expression_step steps[EXPRESSION_STEPS_MAX];
  size_t count;
  size_t depth;   /* of the stack, behind the last step */
  size_t nesting; /* of the parser's own calls */
  kjit_error *error;
};

/* Where byte `at` of the text is: in a text of several lines the column counts from the start of its line. */
static struct expression_source place_of(const struct expression_source *source, size_t at) {
  struct expression_source place = *source;
  size_t line_start = 0;
  for (size_t i = 0; i < at && source->text[i]; i++) {
    if (source->text[i] != '\n') continue;
    line_start = i + 1;
    place.line++;
    place.column = 1;
  }
  place.column += (uint32_t)(at - line_start);
  return place;
}

/* With the file's line and column where there is a file; otherwise with the expression's own column, and with its line
 * where it has several. */
kjit_status expression_refuse(const struct expression_source *source, size_t at, kjit_status status, kjit_error *error,
                              const char *format, ...) {
  char why[320];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(why, sizeof why, format, arguments);
  va_end(arguments);
  if (source->file) {
    const struct expression_source place = place_of(source, at);
    return error_set(error, status, "%s:%u:%u: %s: %s", source->file, (unsigned)place.line, (unsigned)place.column,
                     source->what, why);
  }
  const struct expression_source own =
      place_of(&(struct expression_source){.text = source->text, .line = 1, .column = 1}, at);
  if (strchr(source->text, '\n'))
    return error_set(error, status, "%s: line %u, column %u: %s", source->what, (unsigned)own.line,
                     (unsigned)own.column, why);
  return error_set(error, status, "%s: column %u: %s", source->what, (unsigned)own.column, why);
}

static kjit_status refuse(struct parser *parser, const char *at, const char *why) {
  const struct expression_source *const source = parser->tokens.source;
  return expression_refuse(source, (size_t)(at - source->text), KJIT_ERR_PARSE, parser->error, "%s", why);
}

/* -- Steps -------------------------------------------------------------------------------------------------------- */

/* What a step does to the number of values on the stack. A jump over the other branch of ?: leaves its value there. */
static int growth(uint16_t operation) {
  if (operation < STEP_MINUS) return 1;
  return operation < STEP_MULTIPLY ? 0 : -1;
}

/* The depth is followed while steps are emitted. The machine's stack is as large as the deepest that is allowed, so it
 * never has to look whether it is full. */
static kjit_status emit(struct parser *parser, const char *at, const struct expression_step *step) {
  if (parser->count == EXPRESSION_STEPS_MAX) return refuse(parser, at, "the expression has more than 256 operations");
  parser->depth += (size_t)(ptrdiff_t)growth(step->operation);
  if (parser->depth > EXPRESSION_DEPTH_MAX)
    return refuse(parser, at, "the expression keeps more than 32 values at a time");
  parser->steps[parser->count] = *step;
  parser->steps[parser->count++].at = (uint16_t)(at - parser->tokens.source->text);
  return KJIT_OK;
}

static kjit_status emit_operation(struct parser *parser, const char *at, enum expression_operation operation) {
  const struct expression_step step = {.operation = (uint16_t)operation};
  return emit(parser, at, &step);
}

/* Let a jump that was emitted before its target was known end at the next step. */
static void land(struct parser *parser, size_t jump) {
  parser->steps[jump].target = (uint32_t)parser->count;
}

/* -- Grammar ------------------------------------------------------------------------------------------------------ */

static kjit_status parse_choice(struct parser *parser);
static kjit_status parse_unary(struct parser *parser);

static kjit_status expect(struct parser *parser, const char *sign) {
  char expected[8];
  if (expression_token_is(&parser->tokens.current, sign)) return tokens_advance(&parser->tokens);
  (void)snprintf(expected, sizeof expected, "\"%s\"", sign);
  return tokens_unexpected(&parser->tokens, expected);
}

static const struct function {
  const char *name;
  enum expression_operation operation;
  uint32_t least, most; /* arguments */
} functions[] = {
    {"min", STEP_MIN, 2, 16},        {"max", STEP_MAX, 2, 16}, {"divup", STEP_DIVUP, 2, 2},
    {"roundup", STEP_ROUNDUP, 2, 2}, {"abs", STEP_ABS, 1, 1},  {"is_pow2", STEP_IS_POW2, 1, 1},
    {"log2", STEP_LOG2, 1, 1},
};

/* The current word is "(". min and max of several are those of two at a time. */
static kjit_status parse_arguments(struct parser *parser, const struct function *function, const char *at) {
  uint32_t count = 0;
  kjit_status status = expect(parser, "(");
  for (bool more = true; more && status == KJIT_OK;) {
    status = parse_choice(parser);
    if (++count > function->most && status == KJIT_OK) break;
    if (status == KJIT_OK && (count > 1 || function->most == 1))
      status = emit_operation(parser, at, function->operation);
    if (status != KJIT_OK) return status;
    more = expression_token_is(&parser->tokens.current, ",");
    if (more) status = tokens_advance(&parser->tokens);
  }
  if (status != KJIT_OK) return status;
  if (count >= function->least && count <= function->most) return expect(parser, ")");
  return expression_refuse(parser->tokens.source, (size_t)(at - parser->tokens.source->text), KJIT_ERR_PARSE,
                           parser->error, "%s takes %s", function->name,
                           function->most == 1   ? "one number"
                           : function->most == 2 ? "two numbers"
                                                 : "2 to 16 numbers");
}

/* sizeof(dtype): of a dtype field, or of a dtype by name. Of anything else it would be a guess. */
static kjit_status parse_sizeof(struct parser *parser, const char *at) {
  kjit_status status = expect(parser, "(");
  const struct token name = parser->tokens.current;
  struct expression_step step = {0};
  if (status == KJIT_OK && name.kind != TOKEN_NAME)
    status = tokens_unexpected(&parser->tokens, "a dtype field or a dtype");
  if (status == KJIT_OK)
    status = expression_resolve(parser->scope, parser->tokens.source, &name, &parser->uses, &step, parser->error);
  if (status != KJIT_OK) return status;
  const bool field = step.operation == STEP_FIELD && parser->scope->dtype_fields >> step.operand & 1;
  const bool dtype = step.operation == STEP_NUMBER && element_from_name(name.start, name.bytes);
  if (!field && !dtype) return refuse(parser, name.start, "sizeof takes a dtype field or a dtype by name");
  status = emit(parser, name.start, &step);
  if (status == KJIT_OK) status = emit_operation(parser, at, STEP_SIZEOF);
  if (status == KJIT_OK) status = tokens_advance(&parser->tokens);
  return status == KJIT_OK ? expect(parser, ")") : status;
}

/* A function, or what the scope knows: field, derived constant, parameter, limit, dtype, or a label of an enum. */
static kjit_status parse_name(struct parser *parser, const struct token *name) {
  kjit_status status = tokens_advance(&parser->tokens);
  if (status != KJIT_OK) return status;
  if (expression_token_is(name, "sizeof")) return parse_sizeof(parser, name->start);
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    if (expression_token_is(name, functions[i].name)) return parse_arguments(parser, &functions[i], name->start);
  if (expression_token_is(&parser->tokens.current, "("))
    return refuse(parser, name->start,
                  "no function has this name: there are min, max, divup, roundup, abs, is_pow2, "
                  "log2 and sizeof");
  struct expression_step step = {0};
  status = expression_resolve(parser->scope, parser->tokens.source, name, &parser->uses, &step, parser->error);
  return status == KJIT_OK ? emit(parser, name->start, &step) : status;
}

/* "and", "or" and "not" have the form of names, and would otherwise be reported as unknown ones. */
static kjit_status parse_value(struct parser *parser) {
  const struct token token = parser->tokens.current;
  kjit_status status;
  if (token.kind == TOKEN_NUMBER) {
    const struct expression_step step = {.operation = STEP_NUMBER, .operand = token.number};
    status = emit(parser, token.start, &step);
    return status == KJIT_OK ? tokens_advance(&parser->tokens) : status;
  }
  if (expression_token_is(&token, "and") || expression_token_is(&token, "or") || expression_token_is(&token, "not"))
    return tokens_unexpected(&parser->tokens, "a value");
  if (token.kind == TOKEN_NAME) return parse_name(parser, &token);
  if (!expression_token_is(&token, "(")) return tokens_unexpected(&parser->tokens, "a value");
  status = tokens_advance(&parser->tokens);
  if (status == KJIT_OK) status = parse_choice(parser);
  return status == KJIT_OK ? expect(parser, ")") : status;
}

/* The sign binds to another signed value, so that "- -x" and "!~x" are read. */
static kjit_status parse_signed(struct parser *parser, const struct token *sign, enum expression_operation operation) {
  kjit_status status = tokens_advance(&parser->tokens);
  if (status == KJIT_OK) status = parse_unary(parser);
  return status == KJIT_OK ? emit_operation(parser, sign->start, operation) : status;
}

/* The nesting is bounded, because each level takes a frame of the program's own stack, and family files may come from
 * anywhere. */
static kjit_status parse_unary(struct parser *parser) {
  const struct token sign = parser->tokens.current;
  kjit_status status;
  if (++parser->nesting > EXPRESSION_DEPTH_MAX)
    return refuse(parser, sign.start, "the expression nests more than 32 deep");
  if (expression_token_is(&sign, "-"))
    status = parse_signed(parser, &sign, STEP_MINUS);
  else if (expression_token_is(&sign, "!"))
    status = parse_signed(parser, &sign, STEP_NOT);
  else if (expression_token_is(&sign, "~"))
    status = parse_signed(parser, &sign, STEP_COMPLEMENT);
  else
    status = parse_value(parser);
  parser->nesting--;
  return status;
}

enum { LEVEL_OR = 1, LEVEL_AND, LEVEL_COMPARISON, LEVEL_UNARY = 10 };

static const struct binary {
  const char *sign, *word;
  enum expression_operation operation;
  int level;
} binaries[] = {
    {"||", "or", STEP_OR, LEVEL_OR},
    {"&&", "and", STEP_AND, LEVEL_AND},
    {"==", "==", STEP_EQUAL, LEVEL_COMPARISON},
    {"!=", "!=", STEP_UNEQUAL, LEVEL_COMPARISON},
    {"<=", "<=", STEP_LESS_EQUAL, LEVEL_COMPARISON},
    {">=", ">=", STEP_GREATER_EQUAL, LEVEL_COMPARISON},
    {"<", "<", STEP_LESS, LEVEL_COMPARISON},
    {">", ">", STEP_GREATER, LEVEL_COMPARISON},
    {"|", "|", STEP_BIT_OR, 4},
    {"^", "^", STEP_BIT_XOR, 5},
    {"&", "&", STEP_BIT_AND, 6},
    {"<<", "<<", STEP_LEFT, 7},
    {">>", ">>", STEP_RIGHT, 7},
    {"+", "+", STEP_ADD, 8},
    {"-", "-", STEP_SUBTRACT, 8},
    {"*", "*", STEP_MULTIPLY, 9},
    {"/", "/", STEP_DIVIDE, 9},
    {"%", "%", STEP_REMAINDER, 9},
};

static const struct binary *find_binary(const struct token *token, int level) {
  for (size_t i = 0; i < sizeof binaries / sizeof *binaries; i++) {
    const struct binary *const binary = &binaries[i];
    if (binary->level == level &&
        (expression_token_is(token, binary->sign) || expression_token_is(token, binary->word)))
      return binary;
  }
  return NULL;
}

static kjit_status parse_binary(struct parser *parser, int level);

/* "not" in front of a comparison; what is weaker than a comparison does not belong to it. */
static kjit_status parse_not(struct parser *parser) {
  const struct token word = parser->tokens.current;
  if (++parser->nesting > EXPRESSION_DEPTH_MAX)
    return refuse(parser, word.start, "the expression nests more than 32 deep");
  kjit_status status = tokens_advance(&parser->tokens);
  if (status == KJIT_OK) status = parse_binary(parser, LEVEL_COMPARISON);
  parser->nesting--;
  return status == KJIT_OK ? emit_operation(parser, word.start, STEP_NOT) : status;
}

/* The right side of one operator, and the operator. */
static kjit_status parse_right(struct parser *parser, const struct binary *binary) {
  const struct token sign = parser->tokens.current;
  const bool lazy = binary->level <= LEVEL_AND;
  const size_t jump = parser->count;
  kjit_status status = tokens_advance(&parser->tokens);
  if (status == KJIT_OK && lazy) status = emit_operation(parser, sign.start, binary->operation);
  if (status == KJIT_OK) status = parse_binary(parser, binary->level + 1);
  if (status != KJIT_OK) return status;
  status = emit_operation(parser, sign.start, lazy ? STEP_TRUTH : binary->operation);
  if (lazy) land(parser, jump);
  return status;
}

static kjit_status parse_binary(struct parser *parser, int level) {
  if (level == LEVEL_UNARY) return parse_unary(parser);
  if (level == LEVEL_COMPARISON && expression_token_is(&parser->tokens.current, "not")) return parse_not(parser);
  kjit_status status = parse_binary(parser, level + 1);
  const struct binary *binary = find_binary(&parser->tokens.current, level);
  while (binary && status == KJIT_OK) {
    status = parse_right(parser, binary);
    binary = find_binary(&parser->tokens.current, level);
    if (binary && level == LEVEL_COMPARISON && status == KJIT_OK)
      return refuse(parser, parser->tokens.current.start, "comparisons do not chain: write a < b and b < c");
  }
  return status;
}

/* condition ? one : other */
static kjit_status parse_choice(struct parser *parser) {
  if (++parser->nesting > EXPRESSION_DEPTH_MAX)
    return refuse(parser, parser->tokens.current.start, "the expression nests more than 32 deep");
  kjit_status status = parse_binary(parser, LEVEL_OR);
  const struct token mark = parser->tokens.current;
  if (status == KJIT_OK && expression_token_is(&mark, "?")) {
    const size_t branch = parser->count;
    status = emit_operation(parser, mark.start, STEP_BRANCH);
    if (status == KJIT_OK) status = tokens_advance(&parser->tokens);
    if (status == KJIT_OK) status = parse_choice(parser);
    const size_t over = parser->count;
    if (status == KJIT_OK) status = emit_operation(parser, mark.start, STEP_JUMP);
    if (status == KJIT_OK) land(parser, branch);
    if (status == KJIT_OK) status = expect(parser, ":");
    if (status == KJIT_OK) status = parse_choice(parser);
    if (status == KJIT_OK) land(parser, over);
  }
  parser->nesting--;
  return status;
}

/* The steps are collected on the stack and copied to the arena at the end, when their number is known. `parser` is not
 * cleared as a whole, because most of it are steps that are written before they are read. */
kjit_status expression_parse(struct expression *out, struct arena *arena, const struct expression_scope *scope,
                             const struct expression_source *source, kjit_error *error) {
  struct parser parser;
  parser.scope = scope;
  parser.uses = (struct expression){0};
  parser.count = parser.depth = parser.nesting = 0;
  parser.error = error;
  *out = (struct expression){0};
  kjit_status status = tokens_begin(&parser.tokens, &family_dialect, source, error);
  if (status == KJIT_OK) status = parse_choice(&parser);
  if (status == KJIT_OK && parser.tokens.current.kind != TOKEN_END)
    status = tokens_unexpected(&parser.tokens, "an operator or the end");
  if (status != KJIT_OK) return status;
  struct expression_step *const steps = arena_alloc_array(arena, parser.count, sizeof *steps);
  if (!steps) return error_no_memory(error);
  memcpy(steps, parser.steps, parser.count * sizeof *steps);
  *out = parser.uses;
  out->source = *source;
  out->steps = steps;
  out->step_count = parser.count;
  return KJIT_OK;
}
