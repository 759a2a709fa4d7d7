/* Finds the mask inside a score: what is minus infinity for some keys is the score of the others, and a mask.
 *
 * 1. From the score down, the nodes are marked that may be split: sums, and choices of which one branch is minus
 *    infinity.
 * 2. From the operands up, each of them is split once, however many others use it.
 *
 * Threads: nothing is shared. */
#include "attention/variant/score_class.h"

/* What is known of a node that may be split. */
struct part {
  variant_node_index rest; /* the node without its infinite branches */
  variant_node_index seen; /* where it is finite; VARIANT_NONE: everywhere */
  bool is_looked_at;
};

static bool is_minus_infinity(const struct variant_tree *tree, variant_node_index node) {
  return variant_is_real(tree, node, -__builtin_inff());
}

/* The operand of a choice that is not minus infinity where the other one is; 0: there is none, or the condition depends
 * on the score itself, which is no mask. */
static size_t finite_branch(const struct variant_tree *tree, const struct variant_node *node) {
  if (node->operation != VARIANT_real_where || tree->nodes[node->operands[0]].uses & USES_SCORE) return 0;
  const bool first = is_minus_infinity(tree, node->operands[1]), second = is_minus_infinity(tree, node->operands[2]);
  if (first == second) return 0;
  return first ? 2 : 1;
}

static variant_node_index both(struct variant_tree *tree, variant_node_index a, variant_node_index b) {
  return a == VARIANT_NONE ? b : b == VARIANT_NONE ? a : variant_binary(tree, VARIANT_truth_and, a, b);
}

static void mark(const struct variant_tree *tree, variant_node_index score, struct part *parts) {
  parts[score].is_looked_at = true;
  for (size_t i = (size_t)score + 1; i-- > 0;) {
    const struct variant_node *const node = &tree->nodes[i];
    const size_t finite = finite_branch(tree, node);
    if (!parts[i].is_looked_at) continue;
    if (finite) parts[node->operands[finite]].is_looked_at = true;
    if (node->operation == VARIANT_real_add)
      parts[node->operands[0]].is_looked_at = parts[node->operands[1]].is_looked_at = true;
  }
}

/* Split a node whose operands have been. Those that have no infinite branch stay the nodes that they are. */
static struct part split(struct variant_tree *tree, variant_node_index index, const struct part *parts) {
  const struct variant_node node = tree->nodes[index]; /* a copy, because the tree's memory may move */
  const variant_node_index *const operand = node.operands;
  const size_t finite = finite_branch(tree, &node);
  struct part part = {index, VARIANT_NONE, true};
  if (finite) {
    const variant_node_index condition = finite == 2 ? variant_unary(tree, VARIANT_truth_not, operand[0]) : operand[0];
    part.rest = parts[operand[finite]].rest;
    part.seen = both(tree, condition, parts[operand[finite]].seen);
  } else if (node.operation == VARIANT_real_add) {
    const struct part *const left = &parts[operand[0]], *const right = &parts[operand[1]];
    part.seen = both(tree, left->seen, right->seen);
    if (part.seen != VARIANT_NONE) part.rest = variant_binary(tree, VARIANT_real_add, left->rest, right->rest);
  }
  return part;
}

void variant_split_mask(struct variant_tree *tree, variant_node_index *score, variant_node_index *mask) {
  struct part parts[VARIANT_WRITTEN_NODES_MAX] = {{0}};
  const variant_node_index last = *score; /* what was written: all other nodes are added behind it */
  mark(tree, last, parts);
  for (variant_node_index i = 0; i <= last; i++)
    if (parts[i].is_looked_at) parts[i] = split(tree, i, parts);
  *score = parts[last].rest;
  *mask = both(tree, *mask, parts[last].seen);
}
