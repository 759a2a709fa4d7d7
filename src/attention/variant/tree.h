/* The expression tree of an attention variant. Equal subtrees are one node, so a tree is a list of nodes in which
 * operands stand before what uses them; every pass over it is a loop over the list.
 *
 * Memory that runs out, and more nodes than fit, are remembered in the tree, so that a caller builds freely and tests
 * tree->failed once at the end; until then the nodes that are given are of no use, but safe. */
#ifndef KJIT_ATTENTION_VARIANT_TREE_H
#define KJIT_ATTENTION_VARIANT_TREE_H

#include <stdbool.h>

#include "attention/variant/operations.h"
#include "base/mem.h"
#include "kjit/attention/variant_arguments.h"

/* What a person or a program writes; variants.md knows of none above 100. */
#define VARIANT_WRITTEN_NODES_MAX 1000
/* With what is derived from it: bounds of intervals, the derivative. */
#define VARIANT_NODES_MAX 6000

enum variant_type { TYPE_integer, TYPE_real, TYPE_truth, TYPE_wide, VARIANT_TYPE_COUNT };

enum variant_input {
  INPUT_SCORE,
  INPUT_B,
  INPUT_H,
  INPUT_Q,
  INPUT_K,
  INPUT_SEQ_Q,
  INPUT_SEQ_KV,
  INPUT_HEADS_Q,
  INPUT_HEADS_KV,
  INPUT_COUNT
};
extern const char *const variant_input_names[INPUT_COUNT];

/* What a node depends on, as bits. */
enum {
  USES_SCORE = 1 << INPUT_SCORE,
  USES_B = 1 << INPUT_B,
  USES_H = 1 << INPUT_H,
  USES_Q = 1 << INPUT_Q,
  USES_K = 1 << INPUT_K,
  USES_TENSOR = 1 << INPUT_COUNT,
};

typedef uint16_t variant_node_index;

struct variant_node {
  uint8_t operation; /* enum variant_operation */
  uint8_t type;      /* enum variant_type */
  uint16_t uses;     /* USES_* of the node and of all below it */
  variant_node_index operands[4];
  uint32_t payload; /* bits of a constant, slot of a scalar, input, tensor */
  uint16_t next;    /* of the same hash */
};

struct variant_tree {
  const struct mem *mem;
  struct variant_node *nodes;
  size_t count, capacity;
  size_t limit; /* of nodes, now */
  uint16_t buckets[256];
  uint8_t tensor_ranks[KJIT_VARIANT_TENSORS_MAX];
  uint8_t tensor_types[KJIT_VARIANT_TENSORS_MAX]; /* enum variant_type of what a load gives */
  bool failed;                                    /* out of memory */
  bool full;                                      /* more nodes than the limit */
};

/* No node: where an absent one can be said. */
#define VARIANT_NONE UINT16_MAX

void variant_tree_init(struct variant_tree *tree, const struct mem *mem);
void variant_tree_finish(struct variant_tree *tree);

/* Does the tree still hold what was built? */
static inline bool variant_tree_is_whole(const struct variant_tree *tree) {
  return !tree->failed && !tree->full;
}

/* How many operands a node has; a load as many as its tensor has axes. */
size_t variant_operand_count(const struct variant_tree *tree, const struct variant_node *node);

/* How an operation is spelt in the language, and called in kjit_<name>(). */
const char *variant_operation_word(enum variant_operation operation);
const char *variant_operation_name(enum variant_operation operation);

/* Leaves. */
variant_node_index variant_integer(struct variant_tree *tree, int32_t value);
variant_node_index variant_real(struct variant_tree *tree, float value);
variant_node_index variant_truth(struct variant_tree *tree, bool value);
variant_node_index variant_scalar(struct variant_tree *tree, uint32_t slot, enum variant_type type);
variant_node_index variant_input(struct variant_tree *tree, enum variant_input input);
variant_node_index variant_load(struct variant_tree *tree, uint32_t tensor, const variant_node_index *indices);

/* Operations on nodes of the types that the operation takes. Neutral operands are left out: x + 0, true and x. */
variant_node_index variant_unary(struct variant_tree *tree, enum variant_operation operation, variant_node_index a);
variant_node_index variant_binary(struct variant_tree *tree, enum variant_operation operation, variant_node_index a,
                                  variant_node_index b);
variant_node_index variant_where(struct variant_tree *tree, variant_node_index condition, variant_node_index a,
                                 variant_node_index b);

/* Is the node this constant? */
bool variant_is_integer(const struct variant_tree *tree, variant_node_index node, int32_t value);
bool variant_is_real(const struct variant_tree *tree, variant_node_index node, float value);
bool variant_is_truth(const struct variant_tree *tree, variant_node_index node, bool value);

#endif
