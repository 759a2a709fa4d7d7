/* The names of a variant text: words of the language, inputs, declared scalars and tensors, and what let and any()
 * bind.
 *
 * Threads: nothing is shared. */
#include <string.h>

#include "attention/variant/parser.h"
#include "base/error.h"
#include "base/nearest.h"

static const char *const words[] = {"let", "and", "or", "not", "true", "false", "inf", "hk", "any", "all"};

/* What is written in other languages, and what is written here. */
static const struct {
  const char *word, *instead;
} foreign[] = {
    {"if", "where(condition, a, b)"},
    {"else", "where(condition, a, b)"},
    {"lambda", "the value alone"},
    {"for", "any(i, count, value)"},
    {"return", "the value alone"},
    {"True", "true"},
    {"False", "false"},
    {"q_idx", "q"},
    {"kv_idx", "k"},
    {"q_index", "q"},
    {"kv_index", "k"},
    {"kv", "k"},
    {"s", "score"},
    {"float_inf", "inf"},
    {"INFINITY", "inf"},
    {"fminf", "min"},
    {"fmaxf", "max"},
    {"dot", "more columns of q and k"},
};

/* Words, inputs and functions cannot be names of scalars, tensors or let, because a text that uses both would not say
 * which is meant. */
bool variant_is_reserved(const char *name, size_t bytes) {
  const struct token token = {.kind = TOKEN_NAME, .start = name, .bytes = bytes};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (expression_token_is(&token, words[i])) return true;
  for (size_t i = 0; i < INPUT_COUNT; i++)
    if (expression_token_is(&token, variant_input_names[i])) return true;
  return function_find(&token) != NULL;
}

bool name_is_foreign(const struct token *name) {
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
    if (expression_token_is(name, foreign[i].word)) return true;
  return false;
}

/* People come from PyTorch's flex_attention, from C and from Python, so their words get the sentence that says what to
 * write here. For other names the nearest known one is offered. */
kjit_status name_unknown(const struct parser *parser, const struct token *name) {
  struct nearest nearest;
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
    if (expression_token_is(name, foreign[i].word))
      return parser_refuse(parser, name->start, "\"%s\" is no word of this language: write %s", foreign[i].word,
                           foreign[i].instead);
  }
  nearest_begin(&nearest, name->start, name->bytes);
  nearest_offer_all(&nearest, variant_input_names, INPUT_COUNT);
  nearest_offer_all(&nearest, parser->scope->scalars, parser->scope->scalar_count);
  nearest_offer_all(&nearest, parser->scope->tensors, parser->scope->tensor_count);
  const int shown = name->bytes < 40 ? (int)name->bytes : 40;
  if (nearest.best)
    return parser_refuse(parser, name->start, "nothing is called \"%.*s\": did you mean %s?", shown, name->start,
                         nearest.best);
  return parser_refuse(parser, name->start,
                       "nothing is called \"%.*s\": there are score, b, h, hk, q, k, seq_q, seq_kv, heads_q, heads_kv "
                       "and the declared scalars and tensors",
                       shown, name->start);
}

/* The innermost binding comes first: the list is searched from its end. */
static const struct binding *find_binding(const struct parser *parser, const struct token *name) {
  for (size_t i = parser->binding_count; i-- > 0;) {
    const struct binding *const binding = &parser->bindings[i];
    if (binding->bytes == name->bytes && !memcmp(binding->name, name->start, name->bytes)) return binding;
  }
  return NULL;
}

static bool find_declared(const char *const *names, size_t count, const struct token *name, size_t *index) {
  for (*index = 0; *index < count; ++*index)
    if (expression_token_is(name, names[*index])) return true;
  return false;
}

/* hk is the head of K and V that a query's head reads, h / (heads_q / heads_kv). It is made of the other inputs, so
 * that the kernels need not pass it. */
static kjit_status resolve_input(struct parser *parser, const struct token *name, struct operand *out) {
  struct variant_tree *const tree = parser->tree;
  for (size_t i = 0; i < INPUT_COUNT; i++) {
    if (!expression_token_is(name, variant_input_names[i])) continue;
    if (i == INPUT_SCORE && parser->wanted == TYPE_truth)
      return parser_refuse(parser, name->start,
                           "a mask says which keys are seen, whatever their score: "
                           "score belongs to the score function");
    *out = operand_of(variant_input(tree, (enum variant_input)i), name->start);
    return KJIT_OK;
  }
  if (!expression_token_is(name, "hk")) return name_unknown(parser, name);
  const variant_node_index group = variant_binary(tree, VARIANT_integer_divide, variant_input(tree, INPUT_HEADS_Q),
                                                  variant_input(tree, INPUT_HEADS_KV));
  *out = operand_of(variant_binary(tree, VARIANT_integer_divide, variant_input(tree, INPUT_H), group), name->start);
  return KJIT_OK;
}

/* Bindings are asked first and inputs last. No name is in two of these places, because name_bind() and the declarations
 * refuse one that is taken. */
kjit_status name_resolve(struct parser *parser, const struct token *name, struct operand *out) {
  const struct variant_scope *const scope = parser->scope;
  const struct binding *const binding = find_binding(parser, name);
  size_t index;
  if (binding) {
    *out = binding->value;
  } else if (find_declared(scope->scalars, scope->scalar_count, name, &index)) {
    *out = operand_of(variant_scalar(parser->tree, (uint32_t)index, scope->scalar_types[index]), name->start);
  } else if (find_declared(scope->tensors, scope->tensor_count, name, &index)) {
    *out = (struct operand){.kind = OPERAND_TENSOR, .tensor = (uint32_t)index, .at = name->start};
    if (!parser->tree->tensor_ranks[index])
      *out = operand_of(variant_load(parser->tree, (uint32_t)index, NULL), name->start);
  } else if (expression_token_is(name, "true") || expression_token_is(name, "false")) {
    *out = operand_of(variant_truth(parser->tree, name->bytes == strlen("true")), name->start);
  } else if (expression_token_is(name, "inf")) {
    *out = (struct operand){
        .kind = OPERAND_FRACTION, .fraction = (double)__builtin_inff(), .is_constant = true, .at = name->start};
  } else {
    return resolve_input(parser, name, out);
  }
  out->at = name->start;
  return KJIT_OK;
}

kjit_status name_bind(struct parser *parser, const struct token *name, const struct operand *value) {
  size_t declared;
  if (name->kind != TOKEN_NAME) return tokens_unexpected(&parser->tokens, "a name");
  if (variant_is_reserved(name->start, name->bytes) || find_binding(parser, name) ||
      find_declared(parser->scope->scalars, parser->scope->scalar_count, name, &declared) ||
      find_declared(parser->scope->tensors, parser->scope->tensor_count, name, &declared))
    return parser_refuse(parser, name->start, "the name \"%.*s\" is taken", name->bytes < 40 ? (int)name->bytes : 40,
                         name->start);
  struct binding *const bindings = mem_grow(parser->tree->mem, parser->bindings, parser->binding_count,
                                            &parser->binding_capacity, sizeof *parser->bindings);
  if (!bindings) return error_no_memory(parser->error);
  parser->bindings = bindings;
  bindings[parser->binding_count++] = (struct binding){name->start, name->bytes, *value};
  return KJIT_OK;
}
