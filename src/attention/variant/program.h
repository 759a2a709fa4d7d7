/* The nodes that a few results need, in the order in which they are computed, without anything else of the tree. What
 * is printed, evaluated and digested is a program, so that none of it depends on the order in which a text was read. */
#ifndef KJIT_ATTENTION_VARIANT_PROGRAM_H
#define KJIT_ATTENTION_VARIANT_PROGRAM_H

#include "attention/variant/tree.h"

/* Row intervals have two bounds each. */
#define VARIANT_RESULTS_MAX 8

struct variant_program {
  struct variant_node *nodes; /* operands are positions in this list, each before its user */
  size_t count;
  uint16_t results[VARIANT_RESULTS_MAX]; /* positions */
  size_t result_count;
};

/* Of roots[count], at most VARIANT_RESULTS_MAX, those that are VARIANT_NONE left out. False: out of memory. A program
 * of no roots has no nodes. */
bool variant_program_build(struct variant_program *program, const struct variant_tree *tree,
                           const variant_node_index *roots, size_t count);
void variant_program_finish(struct variant_program *program, const struct mem *mem);

#endif
