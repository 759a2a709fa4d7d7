/* The derivative of a score by s, or by an element of a tensor that it reads, as further nodes of its tree: one pass
 * over the nodes, operands first, in which the derivative of each follows from those of its operands.
 *
 * Threads: nothing is shared. */
#include <string.h>

#include "attention/variant/score_class.h"

struct derivation {
  struct variant_tree *tree;
  variant_node_index by;                    /* the node x by which nodes are derived: s, or a load */
  bool depends[VARIANT_NODES_MAX];          /* on x */
  variant_node_index of[VARIANT_NODES_MAX]; /* of nodes that depend on x */
};

static variant_node_index derivative_of(struct derivation *derivation, variant_node_index index) {
  return derivation->depends[index] ? derivation->of[index] : variant_real(derivation->tree, 0);
}

/* A product with zero is zero here even where the other factor may be infinite: zero stands for "does not depend on x",
 * and what does not depend on x contributes nothing. */
static variant_node_index multiply(struct variant_tree *tree, variant_node_index a, variant_node_index b) {
  const variant_node_index zero = variant_real(tree, 0);
  return a == zero || b == zero ? zero : variant_binary(tree, VARIANT_real_multiply, a, b);
}

static variant_node_index divide(struct variant_tree *tree, variant_node_index a, variant_node_index b) {
  const variant_node_index zero = variant_real(tree, 0);
  return a == zero ? zero : variant_binary(tree, VARIANT_real_divide, a, b);
}

static variant_node_index one_minus(struct variant_tree *tree, variant_node_index a) {
  return variant_binary(tree, VARIANT_real_subtract, variant_real(tree, 1), a);
}

/* The factor that a function of one number puts in front of its operand's derivative; y is the function's value. */
static variant_node_index factor_of(struct variant_tree *tree, enum variant_operation operation, variant_node_index x,
                                    variant_node_index y) {
  switch (operation) {
  case VARIANT_real_negate:
    return variant_real(tree, -1);
  case VARIANT_real_absolute:
    return variant_where(tree, variant_binary(tree, VARIANT_real_less, x, variant_real(tree, 0)),
                         variant_real(tree, -1), variant_real(tree, 1));
  case VARIANT_real_sqrt:
    return divide(tree, variant_real(tree, 0.5f), y);
  case VARIANT_real_exp:
    return y;
  case VARIANT_real_exp2:
    return multiply(tree, y, variant_real(tree, 0.69314718055994531f));
  case VARIANT_real_log:
    return divide(tree, variant_real(tree, 1), x);
  case VARIANT_real_log2:
    return divide(tree, variant_real(tree, 1.4426950408889634f), x);
  case VARIANT_real_tanh:
  case VARIANT_real_tanh_exact:
    return one_minus(tree, multiply(tree, y, y));
  case VARIANT_real_sigmoid:
    return multiply(tree, y, one_minus(tree, y));
  case VARIANT_real_erf:
    return multiply(
        tree, variant_real(tree, 1.1283791670955126f),
        variant_unary(tree, VARIANT_real_exp, variant_unary(tree, VARIANT_real_negate, multiply(tree, x, x))));
  default: /* floor, and casts */
    return variant_real(tree, 0);
  }
}

/* x^e: e · x^(e-1) · dx, and, where the exponent depends on x too, y · log(x) · de. */
static variant_node_index derive_power(struct variant_tree *tree, const struct variant_node *node, variant_node_index y,
                                       variant_node_index dx, variant_node_index de) {
  const variant_node_index x = node->operands[0], exponent = node->operands[1];
  const variant_node_index less = variant_binary(tree, VARIANT_real_subtract, exponent, variant_real(tree, 1));
  const variant_node_index first =
      multiply(tree, dx, multiply(tree, exponent, variant_binary(tree, VARIANT_real_power, x, less)));
  const variant_node_index second = multiply(tree, de, multiply(tree, y, variant_unary(tree, VARIANT_real_log, x)));
  return variant_binary(tree, VARIANT_real_add, first, second);
}

static variant_node_index derive_binary(struct derivation *derivation, const struct variant_node *node,
                                        variant_node_index index) {
  struct variant_tree *const tree = derivation->tree;
  const variant_node_index x = node->operands[0], y = node->operands[1];
  const variant_node_index dx = derivative_of(derivation, x), dy = derivative_of(derivation, y);
  switch (node->operation) {
  case VARIANT_real_add:
  case VARIANT_real_subtract:
    return variant_binary(tree, (enum variant_operation)node->operation, dx, dy);
  case VARIANT_real_multiply:
    return variant_binary(tree, VARIANT_real_add, multiply(tree, dx, y), multiply(tree, x, dy));
  case VARIANT_real_divide: /* (dx - value · dy) / y */
    return divide(tree, variant_binary(tree, VARIANT_real_subtract, dx, multiply(tree, index, dy)), y);
  case VARIANT_real_modulo: /* x - floor(x / y) · y, whose floor is a step */
    return variant_binary(
        tree, VARIANT_real_subtract, dx,
        multiply(tree, variant_unary(tree, VARIANT_real_floor, variant_binary(tree, VARIANT_real_divide, x, y)), dy));
  case VARIANT_real_minimum:
    return variant_where(tree, variant_binary(tree, VARIANT_real_less, x, y), dx, dy);
  case VARIANT_real_maximum:
    return variant_where(tree, variant_binary(tree, VARIANT_real_less, y, x), dx, dy);
  default:
    return derive_power(tree, node, index, dx, dy);
  }
}

/* Integers, truth and elements of tensors do not change with x: what they are computed from is rounded or chosen on the
 * way, so their derivative is 0 wherever there is one. */
static variant_node_index derive_node(struct derivation *derivation, variant_node_index index) {
  struct variant_tree *const tree = derivation->tree;
  const struct variant_node node = tree->nodes[index];
  if (index == derivation->by) return variant_real(tree, 1);
  if (node.type != TYPE_real || node.operation == VARIANT_LOAD) return variant_real(tree, 0);
  if (node.operation == VARIANT_real_where)
    return variant_where(tree, node.operands[0], derivative_of(derivation, node.operands[1]),
                         derivative_of(derivation, node.operands[2]));
  if (variant_operand_count(tree, &node) == 2) return derive_binary(derivation, &node, index);
  if (node.operation == VARIANT_real_from_integer) return variant_real(tree, 0);
  const variant_node_index factor = factor_of(tree, (enum variant_operation)node.operation, node.operands[0], index);
  return multiply(tree, factor, derivative_of(derivation, node.operands[0]));
}

/* Does a node behind x depend on it? */
static bool depends(const struct derivation *derivation, variant_node_index index) {
  const struct variant_node *const node = &derivation->tree->nodes[index];
  const size_t count = variant_operand_count(derivation->tree, node);
  for (size_t i = 0; i < count; i++)
    if (derivation->depends[node->operands[i]]) return true;
  return false;
}

variant_node_index variant_derive(struct variant_tree *tree, variant_node_index score, variant_node_index by) {
  struct derivation derivation;
  derivation.tree = tree;
  derivation.by = by;
  for (size_t i = 0; i <= score && variant_tree_is_whole(tree); i++) {
    derivation.depends[i] = i == by || (i > by && depends(&derivation, (variant_node_index)i));
    if (derivation.depends[i]) derivation.of[i] = derive_node(&derivation, (variant_node_index)i);
  }
  /* Nodes that were added on the way are behind the score, and no node of the score depends on them. A derivative that
   * has too many nodes is given up, and the variant is made without one. The tree holds the score as before, since no
   * node was changed. */
  const bool whole = variant_tree_is_whole(tree);
  if (!tree->failed) tree->full = false;
  return whole ? derivative_of(&derivation, score) : VARIANT_NONE;
}
