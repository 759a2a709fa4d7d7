/* Puts the nodes below a few roots into the order of a depth-first walk, operands first.
 *
 * Threads: nothing is shared. */
#include "attention/variant/program.h"

struct walk {
  const struct variant_tree *tree;
  uint16_t *place;       /* of each node of the tree in the program; VARIANT_NONE: not there yet */
  uint16_t *stack;       /* nodes whose operands are being walked */
  uint8_t *next_operand; /* of each node on the stack */
  struct variant_program *program;
};

static void append(struct walk *walk, uint16_t index) {
  struct variant_program *const program = walk->program;
  struct variant_node *const node = &program->nodes[program->count];
  *node = walk->tree->nodes[index];
  for (size_t i = 0; i < variant_operand_count(walk->tree, node); i++)
    node->operands[i] = walk->place[node->operands[i]];
  walk->place[index] = (uint16_t)program->count++;
}

static void visit(struct walk *walk, uint16_t root) {
  size_t depth = 0;
  if (walk->place[root] != VARIANT_NONE) return;
  walk->stack[depth] = root;
  walk->next_operand[depth++] = 0;
  while (depth) {
    const uint16_t index = walk->stack[depth - 1];
    const struct variant_node *const node = &walk->tree->nodes[index];
    const size_t operand = walk->next_operand[depth - 1]++;
    if (operand == variant_operand_count(walk->tree, node)) {
      append(walk, index);
      depth--;
    } else if (walk->place[node->operands[operand]] == VARIANT_NONE) {
      walk->stack[depth] = node->operands[operand];
      walk->next_operand[depth++] = 0;
    }
  }
}

bool variant_program_build(struct variant_program *program, const struct variant_tree *tree,
                           const variant_node_index *roots, size_t count) {
  const struct mem *const mem = tree->mem;
  struct walk walk = {.tree = tree,
                      .place = mem_alloc_array(mem, tree->count, sizeof *walk.place),
                      .stack = mem_alloc_array(mem, tree->count, sizeof *walk.stack),
                      .next_operand = mem_alloc_array(mem, tree->count, sizeof *walk.next_operand),
                      .program = program};
  *program = (struct variant_program){.nodes = mem_alloc_array(mem, tree->count, sizeof *program->nodes)};
  const bool done = walk.place && walk.stack && walk.next_operand && program->nodes;
  for (size_t i = 0; i < tree->count && done; i++)
    walk.place[i] = VARIANT_NONE;
  for (size_t i = 0; i < count && done; i++) {
    if (roots[i] == VARIANT_NONE) continue;
    visit(&walk, roots[i]);
    program->results[program->result_count++] = walk.place[roots[i]];
  }
  mem_free(mem, walk.place);
  mem_free(mem, walk.stack);
  mem_free(mem, walk.next_operand);
  if (!done) variant_program_finish(program, mem);
  return done;
}

void variant_program_finish(struct variant_program *program, const struct mem *mem) {
  mem_free(mem, program->nodes);
  *program = (struct variant_program){.nodes = NULL};
}
