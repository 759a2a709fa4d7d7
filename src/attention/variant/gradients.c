/* The derivatives of a score by the elements of tensors that it reads: one for each load of a real number.
 *
 * Threads: nothing is shared. */
#include "attention/variant/score_class.h"

/* The nodes that a score may have: what is written, and what splitting a mask from it adds. */
#define REACHED_MAX (VARIANT_WRITTEN_NODES_MAX + 200)

static bool is_real_load(const struct variant_node *node) {
  return node->operation == VARIANT_LOAD && node->type == TYPE_real;
}

/* Mark what the score is computed from: users stand behind their operands, so one walk from the end sees all. */
static void mark_reached(const struct variant_tree *tree, variant_node_index score, bool *reached) {
  reached[score] = true;
  for (size_t i = (size_t)score + 1; i-- > 0;) {
    const struct variant_node *const node = &tree->nodes[i];
    for (size_t at = 0; reached[i] && at < variant_operand_count(tree, node); at++)
      reached[node->operands[at]] = true;
  }
}

static bool add_gradient(kjit_attention_variant *variant, variant_node_index load) {
  struct variant_tree *const tree = &variant->tree;
  const variant_node_index derivative = variant_derive(tree, variant->score, load);
  if (derivative == VARIANT_NONE || variant->gradient_count == VARIANT_GRADIENTS_MAX) {
    variant->has_gradients = false;
    return !tree->failed;
  }
  if (derivative == variant_real(tree, 0)) return true;
  const struct variant_node node = tree->nodes[load];
  const size_t axes = variant_operand_count(tree, &node);
  variant_node_index roots[VARIANT_RESULTS_MAX] = {derivative};
  for (size_t i = 0; i < axes; i++)
    roots[1 + i] = node.operands[i];
  struct variant_gradient *const gradient = &variant->gradients[variant->gradient_count];
  gradient->tensor = (uint8_t)node.payload;
  gradient->along_q = (node.uses & (USES_Q | USES_SCORE)) != 0;
  gradient->along_k = (node.uses & (USES_K | USES_SCORE)) != 0;
  if (!variant_program_build(&gradient->program, tree, roots, 1 + axes)) return false;
  variant->gradient_count++;
  return true;
}

bool variant_find_gradients(kjit_attention_variant *variant) {
  bool reached[REACHED_MAX] = {false};
  variant->gradient_count = 0;
  variant->has_gradients = variant->score < REACHED_MAX;
  if (!variant->has_gradients) return true;
  mark_reached(&variant->tree, variant->score, reached);
  for (size_t i = 0; i <= variant->score && variant->has_gradients; i++) {
    if (reached[i] && is_real_load(&variant->tree.nodes[i]) && !add_gradient(variant, (variant_node_index)i))
      return false;
  }
  return true;
}

void variant_release_gradients(kjit_attention_variant *variant) {
  for (size_t i = 0; i < variant->gradient_count; i++)
    variant_program_finish(&variant->gradients[i].program, &variant->mem);
}
