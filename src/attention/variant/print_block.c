/* Prints kjit_variant_block(): the mask on the ranges of a block's rows and keys.
 *
 * Threads: nothing is shared. */
#include "attention/variant/print.h"

static const char *const range_types[VARIANT_TYPE_COUNT] = {[TYPE_integer] = "kjit_range_integer",
                                                            [TYPE_real] = "kjit_range_real",
                                                            [TYPE_truth] = "kjit_range_truth",
                                                            [TYPE_wide] = ""};

static bool is_opaque(enum variant_operation operation) {
  switch (operation) {
#define ROW(name, result, operand, word) case VARIANT_##name:
    VARIANT_UNARY_OPAQUE(ROW)
    VARIANT_BINARY_OPAQUE(ROW)
#undef ROW
    return true;
  default:
    return false;
  }
}

static void print_input(uint32_t input, struct text *out) {
  static const char *const singles[INPUT_COUNT] = {"",        "b",        "h",         "",          "",
                                                   "a.seq_q", "a.seq_kv", "a.heads_q", "a.heads_kv"};
  if (input == INPUT_Q)
    text_append(out, "kjit_range_between(q0, q1 - 1)");
  else if (input == INPUT_K)
    text_append(out, "kjit_range_between(k0, k1 - 1)");
  else
    text_appendf(out, "kjit_range_between(%s, %s)", singles[input], singles[input]);
}

static void print_leaf(const struct variant_node *node, struct text *out) {
  char value[48];
  struct text text;
  text_init_fixed(&text, value, sizeof value);
  if (node->operation == VARIANT_SCALAR)
    text_appendf(&text, node->type == TYPE_real ? "kjit_float_from_bits(a.scalars[%u])" : "(int)a.scalars[%u]",
                 (unsigned)node->payload);
  else
    text_appendf(&text, node->type == TYPE_real ? "kjit_float_from_bits(0x%08Xu)" : "(int)0x%Xu",
                 (unsigned)node->payload);
  if (node->operation == VARIANT_INPUT)
    print_input(node->payload, out);
  else if (node->type == TYPE_truth)
    text_appendf(out, "kjit_range_truth_of(%s)", node->payload ? "true" : "false");
  else
    text_appendf(out, "kjit_range_%s(%s, %s)", node->type == TYPE_real ? "real_between" : "between", value, value);
}

static void print_load(const kjit_attention_variant *variant, const struct variant_node *node, size_t index,
                       struct text *out) {
  const unsigned tensor = (unsigned)node->payload;
  text_appendf(out, "  kjit_range_box box%zu = kjit_range_box_begin();\n", index);
  for (size_t axis = 0; axis < variant_operand_count(&variant->tree, node); axis++)
    text_appendf(out, "  kjit_range_box_set(&box%zu, &a.tensors[%u], %zu, n%u);\n", index, tensor, axis,
                 (unsigned)node->operands[axis]);
  text_appendf(out, "  const %s n%zu = kjit_range_load_%s(&a.tensors[%u], &box%zu);\n", range_types[node->type], index,
               variant_dtype_name(variant->tensor_dtypes[tensor]), tensor, index);
}

static void print_operation(const kjit_attention_variant *variant, const struct variant_node *node, struct text *out) {
  const enum variant_operation operation = (enum variant_operation)node->operation;
  if (is_opaque(operation)) {
    text_append(out, "kjit_range_real_any()");
    return;
  }
  text_appendf(out, "kjit_range_%s(", variant_operation_name(operation));
  for (size_t i = 0; i < variant_operand_count(&variant->tree, node); i++)
    text_appendf(out, "%sn%u", i ? ", " : "", (unsigned)node->operands[i]);
  text_append(out, ")");
}

void variant_print_block(const kjit_attention_variant *variant, struct text *out) {
  const struct variant_program *const program = &variant->programs.mask;
  text_append(out,
              "\nKJIT_VARIANT_INLINE int kjit_variant_block(const kjit_variant_arguments &a, int b, int h, int q0, "
              "int q1, int k0, int k1) {\n");
  for (size_t i = 0; i < program->count; i++) {
    const struct variant_node *const node = &program->nodes[i];
    if (node->operation == VARIANT_LOAD) {
      print_load(variant, node, i, out);
      continue;
    }
    text_appendf(out, "  const %s n%zu = ", range_types[node->type], i);
    if (node->operation < VARIANT_LOAD)
      print_leaf(node, out);
    else
      print_operation(variant, node, out);
    text_append(out, ";\n");
  }
  if (program->count)
    text_appendf(out, "  return n%u == KJIT_RANGE_FALSE ? 0 : n%u == KJIT_RANGE_TRUE ? 2 : 1;\n}\n",
                 (unsigned)program->results[0], (unsigned)program->results[0]);
  else
    text_append(out, "  return 2;\n}\n");
}
