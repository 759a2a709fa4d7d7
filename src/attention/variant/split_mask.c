/* Finds the mask inside a score: what is minus infinity for some keys is the score of the others, and a mask.
 *
 * Threads: nothing is shared. */
#include "attention/variant/score_class.h"

/* Branches inside one another; deeper ones stay in the score, which is right, and only slower. */
#define DEPTH_MAX 32

static bool is_minus_infinity(const struct variant_tree *tree, variant_node_index node) {
  return variant_is_real(tree, node, -__builtin_inff());
}

static variant_node_index both(struct variant_tree *tree, variant_node_index a, variant_node_index b) {
  return a == VARIANT_NONE ? b : b == VARIANT_NONE ? a : variant_binary(tree, VARIANT_truth_and, a, b);
}

/* The score without its infinite branches; *seen is where it is finite, or VARIANT_NONE: everywhere. A condition on the
 * score itself is no mask. */
static variant_node_index split(struct variant_tree *tree, variant_node_index index, size_t depth,
                                variant_node_index *seen) {
  const struct variant_node node = tree->nodes[index];
  const variant_node_index *const operand = node.operands;
  *seen = VARIANT_NONE;
  if (depth == DEPTH_MAX) return index;
  if (node.operation == VARIANT_real_where && !(tree->nodes[operand[0]].uses & USES_SCORE)) {
    const bool first = is_minus_infinity(tree, operand[1]), second = is_minus_infinity(tree, operand[2]);
    if (first == second) return index;
    variant_node_index inner;
    const variant_node_index rest = split(tree, operand[first ? 2 : 1], depth + 1, &inner);
    const variant_node_index condition = first ? variant_unary(tree, VARIANT_truth_not, operand[0]) : operand[0];
    *seen = both(tree, condition, inner);
    return rest;
  }
  if (node.operation == VARIANT_real_add) {
    variant_node_index left_seen, right_seen;
    const variant_node_index left = split(tree, operand[0], depth + 1, &left_seen);
    const variant_node_index right = split(tree, operand[1], depth + 1, &right_seen);
    *seen = both(tree, left_seen, right_seen);
    return *seen == VARIANT_NONE ? index : variant_binary(tree, VARIANT_real_add, left, right);
  }
  return index;
}

void variant_split_mask(struct variant_tree *tree, variant_node_index *score, variant_node_index *mask) {
  variant_node_index seen;
  *score = split(tree, *score, 0, &seen);
  *mask = both(tree, *mask, seen);
}
