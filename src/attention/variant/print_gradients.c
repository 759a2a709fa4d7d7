/* Prints kjit_variant_gradient: what the gradients of tensors get of a pair of a query and a key.
 *
 * Threads: nothing is shared. */
#include "attention/variant/print.h"

static void print_gradient(const kjit_attention_variant *variant, size_t index, struct text *out) {
  const struct variant_gradient *const gradient = &variant->gradients[index];
  const struct variant_program *const program = &gradient->program;
  text_appendf(out,
               "template <> struct kjit_variant_gradient<%zu> {\n"
               "  enum { tensor = %u, along_q = %d, along_k = %d };\n"
               "  KJIT_VARIANT_INLINE kjit_real at(const kjit_variant_arguments &a, const struct "
               "kjit_variant_tensor_argument &to, kjit_real s, int b, int h, int q, int k, long long &element) {\n",
               index, (unsigned)gradient->tensor, gradient->along_q, gradient->along_k);
  variant_print_body(variant, program, out);
  text_appendf(out, "  element = kjit_variant_at%zu(&to", program->result_count - 1);
  for (size_t i = 1; i < program->result_count; i++)
    text_appendf(out, ", n%u", (unsigned)program->results[i]);
  text_appendf(out, ");\n  return n%u;\n  }\n};\n", (unsigned)program->results[0]);
}

void variant_print_gradients(const kjit_attention_variant *variant, struct text *out) {
  if (!variant->has_gradients || variant->gradient_count == 0) return;
  text_appendf(out, "\n#define KJIT_VARIANT_GRADIENTS %zu\ntemplate <int which> struct kjit_variant_gradient;\n",
               variant->gradient_count);
  for (size_t i = 0; i < variant->gradient_count; i++)
    print_gradient(variant, i, out);
}
