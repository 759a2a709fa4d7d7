/* Prints the header that kernels include: one function after the other, one line for each node of its program.
 *
 * Threads: nothing is shared. */
#include "attention/variant/print.h"

#include "attention/variant/dtypes.h"

static const char *const type_names[VARIANT_TYPE_COUNT] = {
    [TYPE_integer] = "int", [TYPE_real] = "kjit_real", [TYPE_truth] = "bool", [TYPE_wide] = "long long"};

const char *variant_dtype_name(int32_t dtype) {
  switch (dtype) {
#define ROW(name, number, type)                                                                                        \
  case number:                                                                                                         \
    return #name;
    VARIANT_DTYPES(ROW)
#undef ROW
  default:
    return "";
  }
}

/* Real constants are printed as their bits, because a decimal number would have to be read back to the same float by
 * NVRTC and by the host. */
static void print_leaf(const struct variant_node *node, struct text *out) {
  static const char *const inputs[INPUT_COUNT] = {"s",       "b",        "h",         "q",         "k",
                                                  "a.seq_q", "a.seq_kv", "a.heads_q", "a.heads_kv"};
  if (node->operation == VARIANT_INPUT)
    text_append(out, inputs[node->payload]);
  else if (node->operation == VARIANT_SCALAR)
    text_appendf(out, node->type == TYPE_real ? "kjit_float_from_bits(a.scalars[%u])" : "(int)a.scalars[%u]",
                 (unsigned)node->payload);
  else if (node->type == TYPE_real)
    text_appendf(out, "kjit_float_from_bits(0x%08Xu)", (unsigned)node->payload);
  else if (node->type == TYPE_truth)
    text_append(out, node->payload ? "true" : "false");
  else
    text_appendf(out, "(int)0x%Xu", (unsigned)node->payload);
}

static void print_operands(const struct variant_node *node, size_t count, struct text *out) {
  for (size_t i = 0; i < count; i++)
    text_appendf(out, "%sn%u", i ? ", " : "", (unsigned)node->operands[i]);
}

/* One line "const <type> n<index> = ...;", whose operands are the names of earlier lines. The compiler removes what a
 * function does not use. */
static void print_node(const kjit_attention_variant *variant, const struct variant_program *program, size_t index,
                       struct text *out) {
  const struct variant_node *const node = &program->nodes[index];
  const size_t count = variant_operand_count(&variant->tree, node);
  text_appendf(out, "  const %s n%zu = ", type_names[node->type], index);
  if (node->operation == VARIANT_LOAD) {
    const unsigned tensor = (unsigned)node->payload;
    text_appendf(out, "kjit_load_%s(&a.tensors[%u], kjit_variant_at%zu(&a.tensors[%u]%s",
                 variant_dtype_name(variant->tensor_dtypes[tensor]), tensor, count, tensor, count ? ", " : "");
    print_operands(node, count, out);
    text_append(out, "))");
  } else if (node->operation < VARIANT_LOAD) {
    print_leaf(node, out);
  } else {
    text_appendf(out, "kjit_%s(", variant_operation_name((enum variant_operation)node->operation));
    print_operands(node, count, out);
    text_append(out, ")");
  }
  text_append(out, ";\n");
}

void variant_print_body(const kjit_attention_variant *variant, const struct variant_program *program,
                        struct text *out) {
  for (size_t i = 0; i < program->count; i++)
    print_node(variant, program, i, out);
}

/* A function that gives the first result of a program, or `otherwise` where the program is empty. */
static void print_function(const kjit_attention_variant *variant, const struct variant_program *program,
                           const char *head, const char *otherwise, struct text *out) {
  text_appendf(out, "\nKJIT_VARIANT_INLINE %s {\n", head);
  variant_print_body(variant, program, out);
  if (program->count)
    text_appendf(out, "  return n%u;\n}\n", (unsigned)program->results[0]);
  else
    text_appendf(out, "  return %s;\n}\n", otherwise);
}

/* The bounds of every interval are computed; those of the others vanish where `which` is known. */
static void print_interval(const kjit_attention_variant *variant, struct text *out) {
  const struct variant_program *const program = &variant->programs.bounds;
  text_append(out,
              "\nKJIT_VARIANT_INLINE void kjit_variant_interval(const kjit_variant_arguments &a, int which, int b, "
              "int h, int q, int &lo, int &hi) {\n");
  variant_print_body(variant, program, out);
  text_append(out, "  int least = 0, most = a.seq_kv;\n");
  for (size_t i = 0; i < variant->intervals.count; i++)
    text_appendf(out, "  if (which == %zu) least = n%u, most = n%u;\n", i, (unsigned)program->results[2 * i],
                 (unsigned)program->results[2 * i + 1]);
  text_append(out, "  lo = kjit_integer_maximum(least, 0);\n  hi = kjit_integer_minimum(most, a.seq_kv);\n}\n");
}

/* The indices in front of k of a term that is one load along k, where the one along the queries is q itself. */
static void print_tile_axes(const kjit_attention_variant *variant, struct text *out) {
  const struct variant_program *const program = &variant->programs.tile;
  text_appendf(out, "\n#define KJIT_VARIANT_TILE_ROWS %d\n", (int)variant->class.tile_rows - 1);
  if (!variant->class.tile_rows) return;
  text_append(out,
              "\nKJIT_VARIANT_INLINE void kjit_variant_tile_axes(const kjit_variant_arguments &a, int b, int h, int "
              "q, int (&axes)[4]) {\n");
  variant_print_body(variant, program, out);
  for (size_t i = 0; i < program->result_count; i++)
    text_appendf(out, "  axes[%zu] = n%u;\n", i, (unsigned)program->results[i]);
  text_append(out, "}\n");
}

/* A term that is one load along k: where a row of it begins, and two neighbours of it. */
static void print_tile(const kjit_attention_variant *variant, struct text *out) {
  const struct variant_program *const program = &variant->programs.tile;
  const unsigned tensor = variant->class.tile - 1u;
  const char *const dtype = variant_dtype_name(variant->tensor_dtypes[tensor]);
  text_appendf(out,
               "\n#define KJIT_VARIANT_TILE_TENSOR %u\n#define KJIT_VARIANT_TILE_AXES %zu\n\nKJIT_VARIANT_INLINE const "
               "char *kjit_variant_tile_row(const "
               "kjit_variant_arguments &a, int b, int h, int q) {\n",
               tensor, program->result_count + 1);
  variant_print_body(variant, program, out);
  text_appendf(out, "  return (const char *)a.tensors[%u].data + 2 * kjit_variant_at%zu(&a.tensors[%u], ", tensor,
               program->result_count + 1, tensor);
  for (size_t i = 0; i < program->result_count; i++)
    text_appendf(out, "n%u, ", (unsigned)program->results[i]);
  text_appendf(out,
               "0);\n}\n\nKJIT_VARIANT_INLINE void kjit_variant_tile_pair(unsigned pair, float &low, float &high) "
               "{\n  low = kjit_%s_of(pair & 0xffffu);\n  high = kjit_%s_of(pair >> 16);\n}\n",
               dtype, dtype);
}

/* KJIT_VARIANT_LINEAR: a term that adds the same for each further key, or 2, nothing. */
static int linear_along_rows(const kjit_attention_variant *variant) {
  const variant_node_index step = variant->class.step;
  if (step == VARIANT_NONE) return 0;
  return variant_is_real(&variant->tree, step, 0) ? 2 : 1;
}

/* What a kernel folds into the exponent: score = slope · core(inner · s) + term, where the core is s itself in an
 * affine score, and what one more key adds to a term that is linear along a row. */
static void print_parts(const kjit_attention_variant *variant, struct text *out) {
  print_function(variant, &variant->programs.slope,
                 "kjit_real kjit_variant_slope(const kjit_variant_arguments &a, int b, int h, int q)", "1.0f", out);
  print_function(variant, &variant->programs.term,
                 "kjit_real kjit_variant_term(const kjit_variant_arguments &a, int b, int h, int q, int k)", "0.0f",
                 out);
  if (variant->class.core) {
    print_function(variant, &variant->programs.inner,
                   "kjit_real kjit_variant_inner(const kjit_variant_arguments &a, int b, int h, int q)", "1.0f", out);
    text_appendf(out, "\nKJIT_VARIANT_INLINE kjit_real kjit_variant_core(kjit_real x) {\n  return kjit_%s(x);\n}\n",
                 variant_operation_name((enum variant_operation)variant->class.core));
  }
  if (variant->class.tile) print_tile(variant, out);
  if (variant->class.tile) print_tile_axes(variant, out);
  if (linear_along_rows(variant) == 1)
    print_function(variant, &variant->programs.step,
                   "kjit_real kjit_variant_term_step(const kjit_variant_arguments &a, int b, int h, int q)", "0.0f",
                   out);
}

/* The macros come first, because kernels leave out whole steps by them: no score function, no mask, intervals instead
 * of a mask. */
void variant_print_header(const kjit_attention_variant *variant, struct text *out) {
  const bool affine = variant->class.is_affine;
  text_append(out, "#pragma once\n#include <kjit/attention/variant_real_ranges.h>\n\n");
  text_appendf(out,
               "#define KJIT_VARIANT_SCORE %d\n#define KJIT_VARIANT_AFFINE %d\n#define KJIT_VARIANT_CORE %d\n"
               "#define KJIT_VARIANT_TANH %d\n#define KJIT_VARIANT_LINEAR %d\n#define KJIT_VARIANT_PEAK %d\n#define "
               "KJIT_VARIANT_TILE %d\n#define "
               "KJIT_VARIANT_MASK %d\n#define "
               "KJIT_VARIANT_INTERVALS %zu\n",
               !variant->class.is_identity, affine, variant->class.core != 0, variant->class.core == VARIANT_real_tanh,
               linear_along_rows(variant), variant->class.has_peak, variant->class.tile != 0,
               variant->mask != VARIANT_NONE, variant->intervals.count);
  print_function(
      variant, &variant->programs.score,
      "kjit_real kjit_variant_score(const kjit_variant_arguments &a, kjit_real s, int b, int h, int q, int k)", "s",
      out);
  print_function(
      variant, &variant->programs.score_grad,
      "kjit_real kjit_variant_score_grad(const kjit_variant_arguments &a, kjit_real s, int b, int h, int q, int k)",
      "0.0f", out);
  variant_print_gradients(variant, out);
  if (affine || variant->class.core) print_parts(variant, out);
  print_function(variant, &variant->programs.mask,
                 "bool kjit_variant_mask(const kjit_variant_arguments &a, int b, int h, int q, int k)", "true", out);
  print_interval(variant, out);
  variant_print_block(variant, out);
}
