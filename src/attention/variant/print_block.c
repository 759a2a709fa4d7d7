/* Prints kjit_variant_block(): the mask on the ranges of a block's rows and keys.
 *
 * Threads: nothing is shared. */
#include "attention/variant/print.h"

#include <string.h>

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

static void print_node(const kjit_attention_variant *variant, size_t index, struct text *out) {
  const struct variant_node *const node = &variant->programs.mask.nodes[index];
  if (node->operation == VARIANT_LOAD) {
    print_load(variant, node, index, out);
    return;
  }
  text_appendf(out, "  const %s n%zu = ", range_types[node->type], index);
  if (node->operation < VARIANT_LOAD)
    print_leaf(node, out);
  else
    print_operation(variant, node, out);
  text_append(out, ";\n");
}

/* ---- What depends on one side alone ---- */

/* A side of a block: its keys or its queries, and the other one. */
struct side {
  const char *name, *first, *end;
  unsigned uses, other;
};
static const struct side sides[] = {{"keys", "k0", "k1", USES_K, USES_Q}, {"queries", "q0", "q1", USES_Q, USES_K}};

/* Is the node computed from this side of the block, and from nothing of the other one? */
static bool is_of(const struct side *side, const struct variant_node *node) {
  return node->uses & side->uses && !(node->uses & side->other);
}

/* The nodes of one side that go into what both sides decide, or are the result. A leaf is cheaper than its memory. */
struct kept {
  bool of[VARIANT_NODES_MAX];
  size_t count;
};

static void find_kept(const kjit_attention_variant *variant, const struct side *side, struct kept *kept) {
  const struct variant_program *const program = &variant->programs.mask;
  memset(kept, 0, sizeof *kept);
  for (size_t i = 0; i < program->count; i++) {
    const struct variant_node *const user = &program->nodes[i];
    for (size_t at = 0; !is_of(side, user) && at < variant_operand_count(&variant->tree, user); at++)
      kept->of[user->operands[at]] = true;
  }
  if (program->count) kept->of[program->results[0]] = true;
  for (size_t i = 0; i < program->count; i++) {
    const struct variant_node *const node = &program->nodes[i];
    kept->of[i] = kept->of[i] && is_of(side, node) && node->operation != VARIANT_INPUT;
    kept->count += kept->of[i];
  }
}

/* struct kjit_variant_<side>, and the function that computes it. */
static void print_side(const kjit_attention_variant *variant, const struct side *side, const struct kept *kept,
                       struct text *out) {
  const struct variant_program *const program = &variant->programs.mask;
  text_appendf(out, "\nstruct kjit_variant_%s {\n", side->name);
  for (size_t i = 0; i < program->count; i++) {
    if (kept->of[i]) text_appendf(out, "  %s n%zu;\n", range_types[program->nodes[i].type], i);
  }
  text_appendf(
      out,
      "%s};\nKJIT_VARIANT_INLINE struct kjit_variant_%s kjit_variant_block_%s(const kjit_variant_arguments &a, "
      "int b, int h, int %s, int %s) {\n  struct kjit_variant_%s kept;\n",
      kept->count ? "" : "  int none;\n", side->name, side->name, side->first, side->end, side->name);
  for (size_t i = 0; i < program->count && kept->count; i++)
    if (!(program->nodes[i].uses & side->other)) print_node(variant, i, out);
  for (size_t i = 0; i < program->count; i++)
    if (kept->of[i]) text_appendf(out, "  kept.n%zu = n%zu;\n", i, i);
  text_append(out, kept->count ? "  return kept;\n}\n" : "  kept.none = 0;\n  return kept;\n}\n");
}

/* kjit_variant_join_<side>(): a side that holds all that two of them do. */
static void print_join(const kjit_attention_variant *variant, const struct side *side, const struct kept *kept,
                       struct text *out) {
  text_appendf(out,
               "\nKJIT_VARIANT_INLINE struct kjit_variant_%s kjit_variant_join_%s(struct kjit_variant_%s x, struct "
               "kjit_variant_%s y) {\n",
               side->name, side->name, side->name, side->name);
  for (size_t i = 0; i < variant->programs.mask.count; i++) {
    if (!kept->of[i]) continue;
    const char *const type = range_types[variant->programs.mask.nodes[i].type];
    text_appendf(out, "  x.n%zu = %s_where(KJIT_RANGE_EITHER, x.n%zu, y.n%zu);\n", i, type, i, i);
  }
  text_append(out, kept->count ? "  return x;\n}\n" : "  (void)y;\n  return x;\n}\n");
}

/* What both sides decide. */
static void print_meeting(const kjit_attention_variant *variant, const struct kept kept[2], struct text *out) {
  const struct variant_program *const program = &variant->programs.mask;
  text_append(out,
              "\nKJIT_VARIANT_INLINE int kjit_variant_block_meeting(const kjit_variant_arguments &a, const struct "
              "kjit_variant_queries &queries, const struct kjit_variant_keys &keys, int b, int h, int q0, int q1, int "
              "k0, int k1) {\n");
  for (size_t i = 0; i < program->count; i++) {
    const struct variant_node *const node = &program->nodes[i];
    const int side = node->operation == VARIANT_INPUT ? -1
                     : is_of(&sides[0], node)         ? 0
                     : is_of(&sides[1], node)         ? 1
                                                      : -1;
    if (side < 0)
      print_node(variant, i, out);
    else if (kept[side].of[i])
      text_appendf(out, "  const %s n%zu = %s.n%zu;\n", range_types[node->type], i, sides[side].name, i);
  }
  if (program->count)
    text_appendf(out, "  return n%u == KJIT_RANGE_FALSE ? 0 : n%u == KJIT_RANGE_TRUE ? 2 : 1;\n}\n",
                 (unsigned)program->results[0], (unsigned)program->results[0]);
  else
    text_append(out, "  return 2;\n}\n");
}

void variant_print_block(const kjit_attention_variant *variant, struct text *out) {
  struct kept kept[2];
  for (size_t side = 0; side < 2; side++) {
    find_kept(variant, &sides[side], &kept[side]);
    print_side(variant, &sides[side], &kept[side], out);
    print_join(variant, &sides[side], &kept[side], out);
  }
  print_meeting(variant, kept, out);
  text_append(out,
              "\nKJIT_VARIANT_INLINE int kjit_variant_block(const kjit_variant_arguments &a, int b, int h, int q0, "
              "int q1, int k0, int k1) {\n"
              "  return kjit_variant_block_meeting(a, kjit_variant_block_queries(a, b, h, q0, q1), "
              "kjit_variant_block_keys(a, b, h, k0, k1), b, h, q0, q1, k0, k1);\n}\n");
}
