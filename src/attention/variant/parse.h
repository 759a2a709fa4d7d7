/* The language of attention variants: from text to the tree.
 *
 *   text    = { "let" name "=" value ";" } value
 *   value   = or of and of not of comparison of | ^ & << >> + - * / // % ** and - ~ in front; c ? a : b
 *   operand = number | name | name[index, …]… | function(value, …) | any(name, count, value) | (value)
 *
 * Numbers in a text become scalars behind the declared ones, so that another number is the same kernel. Divisors of
 * integers, counts of shifts, bit masks and -1, 0, 1, 2 stay constants, and so does what finds no room. */
#ifndef KJIT_ATTENTION_VARIANT_PARSE_H
#define KJIT_ATTENTION_VARIANT_PARSE_H

#include <kjit/common.h>

#include "attention/variant/tree.h"
#include "family/expression/expression.h"

/* Longer than 1,000 nodes are when a program prints them. */
#define VARIANT_TEXT_MAX    65536
#define VARIANT_NESTING_MAX 100

/* The names that a text may use besides the language's own. All borrowed. */
struct variant_scope {
  const char *const *scalars;
  const enum variant_type *scalar_types;
  size_t scalar_count;
  const char *const *tensors;
  size_t tensor_count;
};

/* The numbers that became scalars: slot i is declared below scalar_count, and bits[i] from there on. */
struct variant_slots {
  uint32_t bits[KJIT_VARIANT_SCALARS_MAX];
  enum variant_type types[KJIT_VARIANT_SCALARS_MAX];
  size_t count;
};

/* A score (wanted: TYPE_real) or a mask (TYPE_truth). KJIT_ERR_PARSE: "<file>:<line>:<column>: <what>: …". */
kjit_status variant_parse(struct variant_tree *tree, struct variant_slots *slots, const struct variant_scope *scope,
                          const struct expression_source *source, enum variant_type wanted, variant_node_index *out,
                          kjit_error *error);

/* Is it a word of the language, which nothing may be called by? */
bool variant_is_reserved(const char *name, size_t bytes);

#endif
