/* Builds expression trees: each node is looked up among the equal ones before it is added, and operations whose result
 * is one of their operands are left out.
 *
 * Threads: a tree belongs to one thread while it is built, and is read only afterwards. */
#include "attention/variant/tree.h"

#include <string.h>

const char *const variant_input_names[INPUT_COUNT] = {"score", "b",      "h",       "q",       "k",
                                                      "seq_q", "seq_kv", "heads_q", "heads_kv"};

static const struct operation_row {
  const char *name, *word;
  uint8_t operands, result;
} rows[VARIANT_OPERATION_COUNT] = {[VARIANT_CONSTANT] = {"constant", "", 0, TYPE_integer},
                                   [VARIANT_SCALAR] = {"scalar", "", 0, TYPE_integer},
                                   [VARIANT_INPUT] = {"input", "", 0, TYPE_integer},
                                   [VARIANT_LOAD] = {"load", "", 0, TYPE_integer},
#define ONE(name, result, operand, word)   [VARIANT_##name] = {#name, word, 1, TYPE_##result},
#define TWO(name, result, operand, word)   [VARIANT_##name] = {#name, word, 2, TYPE_##result},
#define THREE(name, result, operand, word) [VARIANT_##name] = {#name, word, 3, TYPE_##result},
                                   VARIANT_OPERATIONS_OF(ONE, TWO, THREE)
#undef ONE
#undef TWO
#undef THREE
};

const char *variant_operation_word(enum variant_operation operation) {
  return rows[operation].word;
}

const char *variant_operation_name(enum variant_operation operation) {
  return rows[operation].name;
}

void variant_tree_init(struct variant_tree *tree, const struct mem *mem) {
  *tree = (struct variant_tree){.mem = mem, .limit = VARIANT_WRITTEN_NODES_MAX};
  memset(tree->buckets, 0xFF, sizeof tree->buckets);
  (void)variant_integer(tree, 0); /* node 0: what is given where a node cannot be added */
}

void variant_tree_finish(struct variant_tree *tree) {
  mem_free(tree->mem, tree->nodes);
  tree->nodes = NULL;
  tree->count = tree->capacity = 0;
}

size_t variant_operand_count(const struct variant_tree *tree, const struct variant_node *node) {
  return node->operation == VARIANT_LOAD ? tree->tensor_ranks[node->payload] : rows[node->operation].operands;
}

/* -- Nodes -------------------------------------------------------------------------------------------------------- */

/* Everything that is_same() compares goes into the hash; `uses` and `next` do not, because they follow from the rest or
 * from the table. */
static size_t bucket_of(const struct variant_node *node) {
  uint32_t hash = node->operation * 0x9E3779B1u + node->type * 0x85EBCA6Bu + node->payload;
  for (size_t i = 0; i < 4; i++)
    hash = (hash ^ hash >> 15) * 0x2C1B3C6Du + node->operands[i];
  return (hash ^ hash >> 16) % (sizeof((struct variant_tree *)NULL)->buckets / sizeof(uint16_t));
}

static bool is_same(const struct variant_node *a, const struct variant_node *b) {
  return a->operation == b->operation && a->type == b->type && a->payload == b->payload &&
         !memcmp(a->operands, b->operands, sizeof a->operands);
}

/* Find the node or append it. The result is node 0 after a failure, which is a sound node of the wrong value: the
 * builder goes on with it, and variant_tree_is_whole() tells at the end that the tree is of no use. */
static variant_node_index add(struct variant_tree *tree, const struct variant_node *wanted) {
  const size_t bucket = bucket_of(wanted);
  if (tree->failed) return 0;
  for (uint16_t at = tree->buckets[bucket]; at != VARIANT_NONE; at = tree->nodes[at].next) {
    if (is_same(&tree->nodes[at], wanted)) return at;
  }
  if (tree->count >= tree->limit) {
    tree->full = true;
    return 0;
  }
  struct variant_node *const nodes =
      mem_grow(tree->mem, tree->nodes, tree->count, &tree->capacity, sizeof *tree->nodes);
  if (!nodes) {
    tree->failed = true;
    return 0;
  }
  tree->nodes = nodes;
  nodes[tree->count] = *wanted;
  nodes[tree->count].next = tree->buckets[bucket];
  tree->buckets[bucket] = (uint16_t)tree->count;
  return (variant_node_index)tree->count++;
}

static variant_node_index add_leaf(struct variant_tree *tree, enum variant_operation operation, enum variant_type type,
                                   uint32_t payload, uint16_t uses) {
  const struct variant_node node = {
      .operation = (uint8_t)operation, .type = (uint8_t)type, .payload = payload, .uses = uses};
  return add(tree, &node);
}

variant_node_index variant_integer(struct variant_tree *tree, int32_t value) {
  return add_leaf(tree, VARIANT_CONSTANT, TYPE_integer, (uint32_t)value, 0);
}

variant_node_index variant_real(struct variant_tree *tree, float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return add_leaf(tree, VARIANT_CONSTANT, TYPE_real, bits, 0);
}

variant_node_index variant_truth(struct variant_tree *tree, bool value) {
  return add_leaf(tree, VARIANT_CONSTANT, TYPE_truth, value, 0);
}

variant_node_index variant_scalar(struct variant_tree *tree, uint32_t slot, enum variant_type type) {
  return add_leaf(tree, VARIANT_SCALAR, type, slot, 0);
}

variant_node_index variant_input(struct variant_tree *tree, enum variant_input input) {
  return add_leaf(tree, VARIANT_INPUT, input == INPUT_SCORE ? TYPE_real : TYPE_integer, input, (uint16_t)(1 << input));
}

/* There are no nodes at all if memory ran out at the first one; every other index is valid. */
static uint16_t uses_of(const struct variant_tree *tree, variant_node_index index) {
  return tree->nodes ? tree->nodes[index].uses : 0;
}

/* A load depends on the tensor and on what its indices depend on, by which an interval's bound or a slope is known not
 * to change along k. */
variant_node_index variant_load(struct variant_tree *tree, uint32_t tensor, const variant_node_index *indices) {
  struct variant_node node = {
      .operation = VARIANT_LOAD, .type = tree->tensor_types[tensor], .payload = tensor, .uses = USES_TENSOR};
  for (size_t i = 0; i < tree->tensor_ranks[tensor]; i++) {
    node.operands[i] = indices[i];
    node.uses |= uses_of(tree, indices[i]);
  }
  return add(tree, &node);
}

static variant_node_index add_operation(struct variant_tree *tree, enum variant_operation operation,
                                        variant_node_index a, variant_node_index b, variant_node_index c) {
  struct variant_node node = {.operation = (uint8_t)operation, .type = rows[operation].result, .operands = {a, b, c}};
  for (size_t i = 0; i < rows[operation].operands; i++)
    node.uses |= uses_of(tree, node.operands[i]);
  return add(tree, &node);
}

/* -- Constants ---------------------------------------------------------------------------------------------------- */

static bool is_constant(const struct variant_tree *tree, variant_node_index index, enum variant_type type,
                        uint32_t bits) {
  if (!tree->nodes) return false;
  const struct variant_node *const node = &tree->nodes[index];
  return node->operation == VARIANT_CONSTANT && node->type == type && node->payload == bits;
}

bool variant_is_integer(const struct variant_tree *tree, variant_node_index node, int32_t value) {
  return is_constant(tree, node, TYPE_integer, (uint32_t)value);
}

bool variant_is_real(const struct variant_tree *tree, variant_node_index node, float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return is_constant(tree, node, TYPE_real, bits);
}

bool variant_is_truth(const struct variant_tree *tree, variant_node_index node, bool value) {
  return is_constant(tree, node, TYPE_truth, value);
}

/* -- Operations --------------------------------------------------------------------------------------------------- */

/* Two negations cancel out, and a constant is negated here, so that "not (q < k)" and its like cost nothing in the
 * kernel. */
variant_node_index variant_unary(struct variant_tree *tree, enum variant_operation operation, variant_node_index a) {
  if (tree->nodes) {
    const struct variant_node *const node = &tree->nodes[a];
    if (operation == VARIANT_truth_not && node->operation == VARIANT_truth_not) return node->operands[0];
    if (operation == VARIANT_truth_not && node->operation == VARIANT_CONSTANT)
      return variant_truth(tree, !node->payload);
    if (operation == VARIANT_real_negate && node->operation == VARIANT_CONSTANT)
      return add_leaf(tree, VARIANT_CONSTANT, TYPE_real, node->payload ^ 0x80000000u, 0);
  }
  return add_operation(tree, operation, a, 0, 0);
}

/* The operand that the result is, or VARIANT_NONE. */
static variant_node_index neutral(const struct variant_tree *tree, enum variant_operation operation,
                                  variant_node_index a, variant_node_index b) {
  switch (operation) {
  case VARIANT_integer_add:
    if (variant_is_integer(tree, a, 0)) return b;
    return variant_is_integer(tree, b, 0) ? a : VARIANT_NONE;
  case VARIANT_integer_subtract:
    return variant_is_integer(tree, b, 0) ? a : VARIANT_NONE;
  case VARIANT_integer_multiply:
    if (variant_is_integer(tree, a, 1)) return b;
    return variant_is_integer(tree, b, 1) ? a : VARIANT_NONE;
  case VARIANT_real_add:
    if (variant_is_real(tree, a, 0.0f)) return b;
    return variant_is_real(tree, b, 0.0f) ? a : VARIANT_NONE;
  case VARIANT_real_subtract:
  case VARIANT_real_divide:
    return variant_is_real(tree, b, operation == VARIANT_real_divide ? 1.0f : 0.0f) ? a : VARIANT_NONE;
  case VARIANT_real_multiply:
    if (variant_is_real(tree, a, 1.0f)) return b;
    return variant_is_real(tree, b, 1.0f) ? a : VARIANT_NONE;
  case VARIANT_truth_and:
    if (a == b || variant_is_truth(tree, b, true) || variant_is_truth(tree, a, false)) return a;
    return variant_is_truth(tree, a, true) || variant_is_truth(tree, b, false) ? b : VARIANT_NONE;
  case VARIANT_truth_or:
    if (a == b || variant_is_truth(tree, b, false) || variant_is_truth(tree, a, true)) return a;
    return variant_is_truth(tree, a, false) || variant_is_truth(tree, b, true) ? b : VARIANT_NONE;
  case VARIANT_integer_minimum:
    if (a == b || variant_is_integer(tree, b, INT32_MAX)) return a;
    return variant_is_integer(tree, a, INT32_MAX) ? b : VARIANT_NONE;
  case VARIANT_integer_maximum:
    if (a == b || variant_is_integer(tree, b, INT32_MIN)) return a;
    return variant_is_integer(tree, a, INT32_MIN) ? b : VARIANT_NONE;
  default:
    return VARIANT_NONE;
  }
}

variant_node_index variant_binary(struct variant_tree *tree, enum variant_operation operation, variant_node_index a,
                                  variant_node_index b) {
  const variant_node_index same = neutral(tree, operation, a, b);
  return same == VARIANT_NONE ? add_operation(tree, operation, a, b, 0) : same;
}

variant_node_index variant_where(struct variant_tree *tree, variant_node_index condition, variant_node_index a,
                                 variant_node_index b) {
  static const enum variant_operation operations[VARIANT_TYPE_COUNT] = {
      [TYPE_integer] = VARIANT_integer_where, [TYPE_real] = VARIANT_real_where, [TYPE_truth] = VARIANT_truth_where};
  if (!tree->nodes || a == b || variant_is_truth(tree, condition, true)) return a;
  if (variant_is_truth(tree, condition, false)) return b;
  return add_operation(tree, operations[tree->nodes[a].type], condition, a, b);
}
