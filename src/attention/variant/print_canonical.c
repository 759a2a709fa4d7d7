/* Prints the canonical text of a variant, in the language that the parser reads. Values that are used more than once
 * are named by let, so that the text is not longer than the tree.
 *
 * Threads: nothing is shared. */
#include "attention/variant/print.h"

#include <string.h>

struct printer {
  const kjit_attention_variant *variant;
  const struct variant_program *program;
  uint16_t *users; /* of each node */
  struct text *out;
};

static bool is_leaf(const struct variant_node *node) {
  return node->operation < VARIANT_LOAD;
}

/* Leaves are shorter than a name for them. */
static bool is_named(const struct printer *printer, size_t index) {
  return printer->users[index] > 1 && !is_leaf(&printer->program->nodes[index]);
}

/* Nine digits and a power of ten, which a float is read back from. printf's %g would ask the program's locale for the
 * point. */
static void print_real(float value, struct text *out) {
  double magnitude = value < 0 ? -(double)value : (double)value;
  int exponent = 0;
  if (value != value) {
    text_append(out, "(inf - inf)");
  } else if (value - value != 0) {
    text_append(out, value > 0 ? "inf" : "(-inf)");
  } else if (magnitude < 1e6 && magnitude == (double)(int)magnitude) {
    text_appendf(out, value < 0 ? "(-%d.0)" : "%d.0", (int)magnitude);
  } else {
    for (; magnitude >= 1e9; exponent++)
      magnitude /= 10;
    for (; magnitude < 1e8; exponent--)
      magnitude *= 10;
    text_appendf(out, value < 0 ? "(-%lde%d)" : "%lde%d", (long)(magnitude + 0.5), exponent);
  }
}

static void print_leaf(const struct variant_node *node, struct text *out) {
  float real;
  memcpy(&real, &node->payload, sizeof real);
  if (node->operation == VARIANT_INPUT)
    text_append(out, variant_input_names[node->payload]);
  else if (node->operation == VARIANT_SCALAR)
    text_appendf(out, "s%u", (unsigned)node->payload);
  else if (node->type == TYPE_real)
    print_real(real, out);
  else if (node->type == TYPE_truth)
    text_append(out, node->payload ? "true" : "false");
  else
    text_appendf(out, (int32_t)node->payload < 0 ? "(%d)" : "%d", (int)(int32_t)node->payload);
}

static void print_value(const struct printer *printer, uint16_t index);

static void print_list(const struct printer *printer, const struct variant_node *node, size_t count,
                       const char *brackets) {
  text_appendf(printer->out, "%c", brackets[0]);
  for (size_t i = 0; i < count; i++) {
    if (i) text_append(printer->out, ", ");
    print_value(printer, node->operands[i]);
  }
  text_appendf(printer->out, "%c", brackets[1]);
}

/* Every operation is in parentheses, so that the text does not depend on the precedence of operators. */
static void print_expression(const struct printer *printer, const struct variant_node *node) {
  const size_t count = variant_operand_count(&printer->variant->tree, node);
  const char *const word = variant_operation_word((enum variant_operation)node->operation);
  const bool is_function = word[0] >= 'a' && word[0] <= 'z';
  if (is_leaf(node)) {
    print_leaf(node, printer->out);
  } else if (node->operation == VARIANT_LOAD) {
    text_appendf(printer->out, "t%u", (unsigned)node->payload);
    if (count) print_list(printer, node, count, "[]");
  } else if (is_function) {
    text_append(printer->out, word);
    print_list(printer, node, count, "()");
  } else {
    text_append(printer->out, "(");
    if (count == 2) {
      print_value(printer, node->operands[0]);
      text_append(printer->out, " ");
    }
    text_append(printer->out, word);
    if (count == 2) text_append(printer->out, " ");
    print_value(printer, node->operands[count - 1]);
    text_append(printer->out, ")");
  }
}

static void print_value(const struct printer *printer, uint16_t index) {
  if (is_named(printer, index))
    text_appendf(printer->out, "n%u", (unsigned)index);
  else
    print_expression(printer, &printer->program->nodes[index]);
}

/* One of the two texts: the names that it needs, and its value. */
static void print_text(const struct printer *printer, uint16_t result, bool *needed) {
  memset(needed, 0, printer->program->count * sizeof *needed);
  needed[result] = true;
  for (size_t i = (size_t)result + 1; i-- > 0;) {
    const struct variant_node *const node = &printer->program->nodes[i];
    for (size_t j = 0; needed[i] && j < variant_operand_count(&printer->variant->tree, node); j++)
      needed[node->operands[j]] = true;
  }
  for (size_t i = 0; i < result; i++) {
    if (!needed[i] || !is_named(printer, i)) continue;
    text_appendf(printer->out, "let n%zu = ", i);
    print_expression(printer, &printer->program->nodes[i]);
    text_append(printer->out, "; ");
  }
  print_expression(printer, &printer->program->nodes[result]);
}

void variant_print_canonical(const kjit_attention_variant *variant, struct text *out) {
  const struct variant_program *const program = &variant->programs.text;
  const struct mem *const mem = &variant->mem;
  struct printer printer = {variant, program, mem_alloc_array(mem, program->count, sizeof *printer.users), out};
  bool *const needed = mem_alloc_array(mem, program->count, sizeof *needed);
  if (!printer.users || !needed) {
    out->failed = true;
  } else {
    for (size_t i = 0; i < program->count; i++) {
      const struct variant_node *const node = &program->nodes[i];
      for (size_t j = 0; j < variant_operand_count(&variant->tree, node); j++)
        printer.users[node->operands[j]]++;
    }
    text_append(out, "score: ");
    print_text(&printer, program->results[0], needed);
    text_append(out, "\nmask: ");
    if (program->result_count > 1)
      print_text(&printer, program->results[1], needed);
    else
      text_append(out, "true");
    text_append(out, "\n");
  }
  mem_free(mem, printer.users);
  mem_free(mem, needed);
}

/* Types and ranks belong to the canonical text, because the same expression over other types is another kernel. Names
 * do not: they are numbered, s0 and t0. */
void variant_print_types(const kjit_attention_variant *variant, struct text *out) {
  text_append(out, "scalars:");
  for (size_t i = 0; i < variant->slots.count; i++)
    text_append(out, variant->slots.types[i] == TYPE_real ? " fp32" : " int32");
  text_append(out, "; tensors:");
  for (size_t i = 0; i < variant->tensor_count; i++)
    text_appendf(out, " %s[%u]", variant_dtype_name(variant->tensor_dtypes[i]),
                 (unsigned)variant->tree.tensor_ranks[i]);
  text_append(out, "\n");
}
