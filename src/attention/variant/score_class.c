/* Classifies a score: is it affine in s, or in a function of s alone, with a slope that is the same for a row, and what
 * are the terms that it adds? Each question is one loop over the nodes, operands first.
 *
 * Threads: nothing is shared. */
#include "attention/variant/score_class.h"

#include <string.h>

/* The nodes that are looked at; a written text has fewer, and splitting a mask from it adds some. */
#define LOOKED_AT_MAX (VARIANT_WRITTEN_NODES_MAX + 200)

/* -- Affine in s -------------------------------------------------------------------------------------------------- */

/* A node = slope · variable + term; slope is VARIANT_NONE where that cannot be said. Both are nodes. */
struct line {
  variant_node_index slope, term;
};

struct lines {
  struct variant_tree *tree;
  variant_node_index variable; /* the node of s, or of a function of it */
  struct line of[LOOKED_AT_MAX];
};

/* A node without the score is the line 0 · s + itself. */
static struct line line_of(struct lines *lines, variant_node_index index) {
  if (lines->tree->nodes[index].uses & USES_SCORE) return lines->of[index];
  return (struct line){variant_real(lines->tree, 0), index};
}

static bool is_line(const struct line *line) {
  return line->slope != VARIANT_NONE;
}

/* 0 · x is left out here and not in the tree, where x might be infinite or NaN: a slope or a term of zero came from
 * line_of() and stands for what is not there. */
static variant_node_index times(struct variant_tree *tree, variant_node_index a, variant_node_index b) {
  const variant_node_index zero = variant_real(tree, 0);
  return a == zero ? zero : variant_binary(tree, VARIANT_real_multiply, a, b);
}

/* A line times, or divided by, what is the same for a row as far as the slope goes. */
static struct line scaled(struct lines *lines, enum variant_operation operation, struct line line,
                          variant_node_index factor) {
  struct variant_tree *const tree = lines->tree;
  if (tree->nodes[factor].uses & (USES_SCORE | USES_K)) return (struct line){VARIANT_NONE, 0};
  if (operation == VARIANT_real_multiply)
    return (struct line){times(tree, line.slope, factor), times(tree, line.term, factor)};
  return (struct line){variant_binary(tree, operation, line.slope, factor),
                       variant_binary(tree, operation, line.term, factor)};
}

/* By the rules for sums, negation, products and quotients with what does not depend on the score, and for a choice
 * between two lines. A choice whose slopes change along k is no line, because the kernel multiplies a whole row by one
 * slope. */
static struct line find_line(struct lines *lines, const struct variant_node *node) {
  struct variant_tree *const tree = lines->tree;
  const struct line none = {VARIANT_NONE, 0};
  if (node->type != TYPE_real) return none;
  const struct line a = line_of(lines, node->operands[0]), b = line_of(lines, node->operands[1]);
  const enum variant_operation operation = (enum variant_operation)node->operation;
  switch (operation) {
  case VARIANT_real_add:
  case VARIANT_real_subtract:
    if (!is_line(&a) || !is_line(&b)) return none;
    return (struct line){variant_binary(tree, operation, a.slope, b.slope),
                         variant_binary(tree, operation, a.term, b.term)};
  case VARIANT_real_negate:
    if (!is_line(&a)) return none;
    return (struct line){variant_unary(tree, operation, a.slope), variant_unary(tree, operation, a.term)};
  case VARIANT_real_multiply:
    if (tree->nodes[node->operands[1]].uses & USES_SCORE)
      return is_line(&b) ? scaled(lines, operation, b, node->operands[0]) : none;
    return is_line(&a) ? scaled(lines, operation, a, node->operands[1]) : none;
  case VARIANT_real_divide:
    return is_line(&a) ? scaled(lines, operation, a, node->operands[1]) : none;
  case VARIANT_real_where: {
    const struct line c = line_of(lines, node->operands[2]);
    if (!is_line(&b) || !is_line(&c) || tree->nodes[node->operands[0]].uses & USES_SCORE) return none;
    const struct line line = {variant_where(tree, node->operands[0], b.slope, c.slope),
                              variant_where(tree, node->operands[0], b.term, c.term)};
    return tree->nodes[line.slope].uses & USES_K ? none : line;
  }
  default:
    return none;
  }
}

/* The lines of all nodes up to `last` in the variable. New nodes are appended while the old ones are looked at, so each
 * node is copied before the tree's memory may move. */
static void find_lines(struct lines *lines, variant_node_index variable, variant_node_index last) {
  struct variant_tree *const tree = lines->tree;
  lines->variable = variable;
  for (variant_node_index i = 0; i <= last; i++) {
    const struct variant_node node = tree->nodes[i];
    if (!(node.uses & USES_SCORE)) continue;
    if (i == variable)
      lines->of[i] = (struct line){variant_real(tree, 1), variant_real(tree, 0)};
    else
      lines->of[i] = node.operation == VARIANT_INPUT ? (struct line){VARIANT_NONE, 0} : find_line(lines, &node);
  }
}

/* A function of one real number whose values of a row can be multiplied and added to in the exponent. */
static bool is_core(const struct variant_tree *tree, const struct variant_node *node) {
  return node->type == TYPE_real && node->operation > VARIANT_LOAD && variant_operand_count(tree, node) == 1 &&
         node->uses & USES_SCORE && tree->nodes[node->operands[0]].type == TYPE_real;
}

/* The outermost function f such that score = slope · f(inner · s) + term. */
static void find_core(struct lines *lines, variant_node_index score, struct variant_score_class *out) {
  struct variant_tree *const tree = lines->tree;
  const variant_node_index zero = variant_real(tree, 0);
  for (size_t tried = (size_t)score + 1; tried-- > 0;) {
    const struct variant_node node = tree->nodes[tried];
    if (!is_core(tree, &node)) continue;
    find_lines(lines, lines->variable, node.operands[0]);
    const struct line inner = line_of(lines, node.operands[0]);
    if (!is_line(&inner) || inner.term != zero || inner.slope == zero) continue;
    const variant_node_index s = lines->variable;
    find_lines(lines, (variant_node_index)tried, score);
    const struct line line = line_of(lines, score);
    lines->variable = s;
    if (!is_line(&line) || !variant_tree_is_whole(tree)) continue;
    *out = (struct variant_score_class){.is_identity = out->is_identity,
                                        .is_pointwise = out->is_pointwise,
                                        .terms = out->terms,
                                        .slope = line.slope,
                                        .term = line.term,
                                        .core = node.operation,
                                        .inner = inner.slope,
                                        .step = VARIANT_NONE};
    return;
  }
}

static void find_affine(struct variant_tree *tree, variant_node_index score, struct variant_score_class *out) {
  struct lines lines = {.tree = tree};
  if (score >= LOOKED_AT_MAX || tree->nodes[score].type != TYPE_real) return;
  find_lines(&lines, variant_input(tree, INPUT_SCORE), score);
  const struct line line = line_of(&lines, score);
  if (is_line(&line) && variant_tree_is_whole(tree)) {
    out->is_affine = true;
    out->slope = line.slope;
    out->term = line.term;
  } else if (tree->nodes[score].uses & USES_SCORE) {
    find_core(&lines, score, out);
  }
}

/* -- Terms that are linear along a row ------------------------------------------------------------------------------
 */

/* What one more key adds to a node, from what it adds to the operands; VARIANT_NONE where that is not the same for all
 * keys. Products of integers are left out, because they may wrap. */
static variant_node_index find_step(struct variant_tree *tree, const variant_node_index *steps,
                                    const struct variant_node *node) {
  const variant_node_index a = steps[node->operands[0]], b = steps[node->operands[1]];
  const bool a_is_free = !(tree->nodes[node->operands[0]].uses & USES_K);
  const bool b_is_free = !(tree->nodes[node->operands[1]].uses & USES_K);
  const enum variant_operation operation = (enum variant_operation)node->operation;
  switch (operation) {
  case VARIANT_INPUT:
    return variant_integer(tree, 1);
  case VARIANT_integer_add:
  case VARIANT_integer_subtract:
  case VARIANT_real_add:
  case VARIANT_real_subtract:
    return a == VARIANT_NONE || b == VARIANT_NONE ? VARIANT_NONE : variant_binary(tree, operation, a, b);
  case VARIANT_integer_negate:
  case VARIANT_real_negate:
  case VARIANT_real_from_integer:
    return a == VARIANT_NONE ? VARIANT_NONE : variant_unary(tree, operation, a);
  case VARIANT_real_multiply:
    if (a != VARIANT_NONE && b_is_free) return variant_binary(tree, operation, a, node->operands[1]);
    return b != VARIANT_NONE && a_is_free ? variant_binary(tree, operation, b, node->operands[0]) : VARIANT_NONE;
  case VARIANT_real_divide:
    return a != VARIANT_NONE && b_is_free ? variant_binary(tree, operation, a, node->operands[1]) : VARIANT_NONE;
  default:
    return VARIANT_NONE;
  }
}

static void find_steps(struct variant_tree *tree, struct variant_score_class *out) {
  variant_node_index steps[LOOKED_AT_MAX] = {0};
  if (out->term == VARIANT_NONE || out->term >= LOOKED_AT_MAX) return;
  for (variant_node_index i = 0; i <= out->term; i++) {
    const struct variant_node node = tree->nodes[i];
    if (node.uses & USES_K)
      steps[i] = find_step(tree, steps, &node);
    else if (node.type == TYPE_integer)
      steps[i] = variant_integer(tree, 0);
    else
      steps[i] = node.type == TYPE_real ? variant_real(tree, 0) : VARIANT_NONE;
  }
  out->step = steps[out->term];
}

/* -- Terms -------------------------------------------------------------------------------------------------------- */

/* What is known of a node that does not depend on the score. */
struct shape {
  int8_t q, k;        /* factors of q and k, where it is linear in both */
  uint8_t linear : 1; /* q · i + k · j + a rest without them */
  uint8_t distance : 1;
  uint8_t separable : 1; /* f(q) + g(k) */
  uint8_t tile : 1;      /* made of loads at [.., q, k] and of what has no q and k */
};

static bool is_free(const struct variant_node *node) {
  return !(node->uses & (USES_Q | USES_K));
}

/* Factors are kept below 100, so that they fit their 8 bits; a text with a larger one is not called linear, which costs
 * speed and nothing else. */
static void find_linear(const struct variant_node *node, const struct shape *a, const struct shape *b,
                        struct shape *out) {
  const int sign = node->operation == VARIANT_integer_subtract ? -1 : 1;
  if (node->operation == VARIANT_INPUT) {
    out->linear = 1;
    out->q = node->payload == INPUT_Q ? 1 : 0;
    out->k = node->payload == INPUT_K ? 1 : 0;
  } else if (node->operation == VARIANT_integer_add || node->operation == VARIANT_integer_subtract) {
    const int q = a->q + sign * b->q, k = a->k + sign * b->k;
    out->linear = a->linear && b->linear && q > -100 && q < 100 && k > -100 && k < 100;
    out->q = (int8_t)(out->linear ? q : 0);
    out->k = (int8_t)(out->linear ? k : 0);
  } else if (node->operation == VARIANT_integer_negate) {
    *out = (struct shape){.q = (int8_t)-a->q, .k = (int8_t)-a->k, .linear = a->linear};
  }
  if (is_free(node)) out->linear = 1;
}

/* Is the node f(q) + g(k)? What uses only one of the two is; sums of such nodes and multiples by what uses neither
 * are. */
static bool find_separable(const struct variant_tree *tree, const struct variant_node *node, const struct shape *a,
                           const struct shape *b) {
  if (!(node->uses & USES_Q) || !(node->uses & USES_K)) return true;
  switch (node->operation) {
  case VARIANT_integer_add:
  case VARIANT_integer_subtract:
  case VARIANT_real_add:
  case VARIANT_real_subtract:
    return a->separable && b->separable;
  case VARIANT_integer_negate:
  case VARIANT_real_negate:
  case VARIANT_real_from_integer:
    return a->separable;
  case VARIANT_integer_multiply:
  case VARIANT_real_multiply:
    return (a->separable && is_free(&tree->nodes[node->operands[1]])) ||
           (b->separable && is_free(&tree->nodes[node->operands[0]]));
  case VARIANT_real_divide:
    return a->separable && is_free(&tree->nodes[node->operands[1]]);
  default:
    return false;
  }
}

/* A load whose indices are q and k themselves, and others without them. */
static bool is_tile_load(const struct variant_tree *tree, const struct variant_node *node) {
  bool tile = true;
  for (size_t i = 0; i < tree->tensor_ranks[node->payload]; i++) {
    const struct variant_node *const index = &tree->nodes[node->operands[i]];
    const bool plain = index->operation == VARIANT_INPUT;
    tile = tile && (plain || is_free(index));
  }
  return tile;
}

static void find_shape(const struct variant_tree *tree, const struct shape *shapes, const struct variant_node *node,
                       struct shape *out) {
  const size_t count = variant_operand_count(tree, node);
  bool distance = count > 0, tile = count > 0 && node->operation != VARIANT_real_from_integer;
  *out = (struct shape){0};
  for (size_t i = 0; i < count; i++) {
    distance = distance && shapes[node->operands[i]].distance;
    tile = tile && (shapes[node->operands[i]].tile || is_free(&tree->nodes[node->operands[i]]));
  }
  if (node->operation == VARIANT_LOAD) tile = is_tile_load(tree, node);
  find_linear(node, &shapes[node->operands[0]], &shapes[node->operands[1]], out);
  out->distance = is_free(node) || distance || (out->linear && out->q == -out->k);
  out->tile = tile;
  out->separable = find_separable(tree, node, &shapes[node->operands[0]], &shapes[node->operands[1]]);
}

/* The first class that fits is the cheapest to compute: constants, one value a row, one a key, both, one a distance,
 * one load an element, and at last anything. */
static uint32_t class_of_term(const struct variant_tree *tree, const struct shape *shapes, variant_node_index term) {
  const struct variant_node *const node = &tree->nodes[term];
  if (node->operation == VARIANT_CONSTANT) return 0;
  if (!(node->uses & USES_K)) return KJIT_VARIANT_TERM_ROW;
  if (!(node->uses & USES_Q)) return KJIT_VARIANT_TERM_KEY;
  if (shapes[term].separable) return KJIT_VARIANT_TERM_KEY | KJIT_VARIANT_TERM_ROW;
  if (shapes[term].distance) return KJIT_VARIANT_TERM_DISTANCE;
  if (shapes[term].tile) return KJIT_VARIANT_TERM_TILE;
  return node->uses & USES_TENSOR ? KJIT_VARIANT_TERM_GATHER : KJIT_VARIANT_TERM_OTHER;
}

/* The classes of the addends that do not depend on s, and of what is left of the score without them. `pointwise`: that
 * rest is a function of s alone, and not s itself. */
static uint32_t class_of_addends(const struct variant_tree *tree, const struct shape *shapes, variant_node_index index,
                                 bool *pointwise) {
  uint32_t classes = 0;
  for (;;) {
    const struct variant_node *const node = &tree->nodes[index];
    if (!(node->uses & USES_SCORE)) return classes | class_of_term(tree, shapes, index);
    const bool sum = node->operation == VARIANT_real_add || node->operation == VARIANT_real_subtract;
    const bool left = sum && tree->nodes[node->operands[0]].uses & USES_SCORE;
    const bool right = sum && tree->nodes[node->operands[1]].uses & USES_SCORE;
    if (!sum || (left && right)) {
      *pointwise = node->operation != VARIANT_INPUT && !(node->uses & (USES_Q | USES_K));
      const bool other = node->operation != VARIANT_INPUT && !*pointwise;
      return classes | (other ? (node->uses & USES_TENSOR ? KJIT_VARIANT_TERM_GATHER : KJIT_VARIANT_TERM_OTHER) : 0u);
    }
    classes |= class_of_term(tree, shapes, node->operands[left ? 1 : 0]);
    index = node->operands[left ? 0 : 1];
  }
}

static void find_terms(const struct variant_tree *tree, variant_node_index score, struct variant_score_class *out) {
  struct shape shapes[LOOKED_AT_MAX] = {{0}};
  if (score >= LOOKED_AT_MAX) {
    out->terms = KJIT_VARIANT_TERM_OTHER;
    return;
  }
  for (size_t i = 0; i <= score; i++)
    find_shape(tree, shapes, &tree->nodes[i], &shapes[i]);
  out->terms = class_of_addends(tree, shapes, score, &out->is_pointwise);
}

void variant_classify_score(struct variant_tree *tree, variant_node_index score, struct variant_score_class *out) {
  *out = (struct variant_score_class){.slope = VARIANT_NONE, .term = VARIANT_NONE, .inner = VARIANT_NONE};
  out->step = VARIANT_NONE;
  const struct variant_node *const node = &tree->nodes[score];
  out->is_identity = node->operation == VARIANT_INPUT && node->payload == INPUT_SCORE;
  find_terms(tree, score, out);
  find_affine(tree, score, out);
  find_steps(tree, out);
}
