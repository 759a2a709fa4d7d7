/* The host evaluator: the functions that the kernels call, on values and on ranges, with real numbers in double
 * precision.
 *
 * Threads: a variant is read only; the values of a run are on the caller's stack. */
#define KJIT_VARIANT_REAL double
#include "attention/variant/evaluate.h"

#include <string.h>

#include "attention/variant/dtypes.h"
#include "kjit/attention/variant_real_ranges.h"

/* -- Values ------------------------------------------------------------------------------------------------------- */

static double float_of(uint32_t bits) {
  return (double)kjit_float_from_bits(bits);
}

/* The inputs that are integers. The score is not among them, because it is the only real one: run_leaf() gives it. */
static int32_t input_of(const struct kjit_variant_arguments *arguments, const struct variant_place *place,
                        uint32_t input) {
  const int32_t inputs[INPUT_COUNT] = {
      [INPUT_B] = place->b,
      [INPUT_H] = place->h,
      [INPUT_Q] = place->q,
      [INPUT_K] = place->k,
      [INPUT_SEQ_Q] = arguments->seq_q,
      [INPUT_SEQ_KV] = arguments->seq_kv,
      [INPUT_HEADS_Q] = arguments->heads_q,
      [INPUT_HEADS_KV] = arguments->heads_kv,
  };
  return inputs[input];
}

/* One element of a tensor as the value that its dtype gives. kjit_load_<dtype>() is the kernel's own function, so that
 * host and kernel cannot read the same bytes differently. */
static void load(const struct kjit_variant_tensor_argument *tensor, int32_t dtype, long long at,
                 union variant_value *out) {
  switch (dtype) {
  case VARIANT_DTYPE_bool:
    out->truth = kjit_load_bool(tensor, at);
    break;
#define INTEGER(name)                                                                                                  \
  case VARIANT_DTYPE_##name:                                                                                           \
    out->integer = kjit_load_##name(tensor, at);                                                                       \
    break;
#define REAL(name)                                                                                                     \
  case VARIANT_DTYPE_##name:                                                                                           \
    out->real = kjit_load_##name(tensor, at);                                                                          \
    break;
    INTEGER(uint8)
    INTEGER(int8) INTEGER(int16) INTEGER(int32) INTEGER(int64) REAL(fp16) REAL(bf16) REAL(fp32) REAL(fp64)
#undef INTEGER
#undef REAL
  }
}

/* Each index is clamped into its axis by kjit_variant_step(), so that no index that a text computes can read outside of
 * the tensor. */
static void run_load(const kjit_attention_variant *variant, const struct kjit_variant_arguments *arguments,
                     const struct variant_node *node, const union variant_value *values, union variant_value *out) {
  const struct kjit_variant_tensor_argument *const tensor = &arguments->tensors[node->payload];
  long long at = 0;
  for (size_t i = 0; i < variant->tree.tensor_ranks[node->payload]; i++)
    at += kjit_variant_step(tensor, (int)i, values[node->operands[i]].integer);
  load(tensor, variant->tensor_dtypes[node->payload], at, out);
}

static void run_leaf(const struct kjit_variant_arguments *arguments, const struct variant_node *node, double score,
                     const struct variant_place *place, union variant_value *out) {
  const uint32_t bits = node->operation == VARIANT_SCALAR ? arguments->scalars[node->payload] : node->payload;
  if (node->operation == VARIANT_INPUT && node->payload == INPUT_SCORE)
    out->real = score;
  else if (node->operation == VARIANT_INPUT)
    out->integer = input_of(arguments, place, node->payload);
  else if (node->type == TYPE_real)
    out->real = float_of(bits);
  else if (node->type == TYPE_truth)
    out->truth = bits != 0;
  else
    out->integer = (int32_t)bits;
}

/* Call the function of the operation, which the kernels call too. operations.h lists every operation once, with the
 * members of the union that its operands and its result are; an operation that is added there is known here. */
static void run_operation(const struct variant_node *node, const union variant_value *values,
                          union variant_value *out) {
  const union variant_value *const a = &values[node->operands[0]], *const b = &values[node->operands[1]];
  const union variant_value *const c = &values[node->operands[2]];
  switch (node->operation) {
#define ONE(name, result, operand, word)                                                                               \
  case VARIANT_##name:                                                                                                 \
    out->result = kjit_##name(a->operand);                                                                             \
    break;
#define TWO(name, result, operand, word)                                                                               \
  case VARIANT_##name:                                                                                                 \
    out->result = kjit_##name(a->operand, b->operand);                                                                 \
    break;
#define THREE(name, result, operand, word)                                                                             \
  case VARIANT_##name:                                                                                                 \
    out->result = kjit_##name(a->truth, b->operand, c->operand);                                                       \
    break;
    VARIANT_OPERATIONS_OF(ONE, TWO, THREE)
#undef ONE
#undef TWO
#undef THREE
  }
}

/* Operands stand before what uses them, so that one pass computes every node once. */
void variant_run(const kjit_attention_variant *variant, const struct variant_program *program,
                 const struct kjit_variant_arguments *arguments, double score, const struct variant_place *place,
                 union variant_value *results) {
  union variant_value values[VARIANT_NODES_MAX];
  for (size_t i = 0; i < program->count; i++) {
    const struct variant_node *const node = &program->nodes[i];
    if (node->operation == VARIANT_LOAD)
      run_load(variant, arguments, node, values, &values[i]);
    else if (node->operation < VARIANT_LOAD)
      run_leaf(arguments, node, score, place, &values[i]);
    else
      run_operation(node, values, &values[i]);
  }
  for (size_t i = 0; i < program->result_count; i++)
    results[i] = values[program->results[i]];
}

double variant_score_at(const kjit_attention_variant *variant, const struct kjit_variant_arguments *arguments,
                        double score, const struct variant_place *place) {
  union variant_value result[VARIANT_RESULTS_MAX] = {{0}};
  variant_run(variant, &variant->programs.score, arguments, score, place, result);
  return result[0].real;
}

double variant_score_grad_at(const kjit_attention_variant *variant, const struct kjit_variant_arguments *arguments,
                             double score, const struct variant_place *place) {
  union variant_value result[VARIANT_RESULTS_MAX] = {{0}};
  if (!variant->programs.score_grad.count) return 0;
  variant_run(variant, &variant->programs.score_grad, arguments, score, place, result);
  return result[0].real;
}

bool variant_mask_tree_at(const kjit_attention_variant *variant, const struct kjit_variant_arguments *arguments,
                          const struct variant_place *place) {
  union variant_value result[VARIANT_RESULTS_MAX] = {{0}};
  if (variant->mask == VARIANT_NONE) return true;
  variant_run(variant, &variant->programs.mask, arguments, 0, place, result);
  return result[0].truth;
}

void variant_interval_at(const kjit_attention_variant *variant, const struct kjit_variant_arguments *arguments,
                         size_t which, const struct variant_place *row, int32_t *lo, int32_t *hi) {
  union variant_value results[VARIANT_RESULTS_MAX] = {{0}};
  variant_run(variant, &variant->programs.bounds, arguments, 0, row, results);
  *lo = kjit_integer_maximum(results[2 * which].integer, 0);
  *hi = kjit_integer_minimum(results[2 * which + 1].integer, arguments->seq_kv);
}

/* A key is seen if it lies in one of the row's intervals, which together are the whole mask. Where none could be
 * derived, the mask's own tree is asked. */
bool variant_mask_at(const kjit_attention_variant *variant, const struct kjit_variant_arguments *arguments,
                     const struct variant_place *place) {
  if (!variant->intervals.count) return variant_mask_tree_at(variant, arguments, place);
  union variant_value results[VARIANT_RESULTS_MAX] = {{0}};
  variant_run(variant, &variant->programs.bounds, arguments, 0, place, results);
  for (size_t i = 0; i < variant->intervals.count; i++)
    if (results[2 * i].integer <= place->k && place->k < results[2 * i + 1].integer) return true;
  return false;
}

/* -- Ranges ------------------------------------------------------------------------------------------------------- */

union range {
  struct kjit_range_integer integer;
  struct kjit_range_real real;
  kjit_range_truth truth;
};

/* The range of all elements that the ranges of the indices can reach. A box that is too large to be read gives the
 * range of everything. */
static void range_load(const kjit_attention_variant *variant, const struct kjit_variant_arguments *arguments,
                       const struct variant_node *node, const union range *ranges, union range *out) {
  const struct kjit_variant_tensor_argument *const tensor = &arguments->tensors[node->payload];
  struct kjit_range_box box = kjit_range_box_begin();
  for (size_t i = 0; i < variant->tree.tensor_ranks[node->payload]; i++)
    kjit_range_box_set(&box, tensor, (int)i, ranges[node->operands[i]].integer);
  switch (variant->tensor_dtypes[node->payload]) {
  case VARIANT_DTYPE_bool:
    out->truth = kjit_range_load_bool(tensor, &box);
    break;
#define INTEGER(name)                                                                                                  \
  case VARIANT_DTYPE_##name:                                                                                           \
    out->integer = kjit_range_load_##name(tensor, &box);                                                               \
    break;
#define REAL(name)                                                                                                     \
  case VARIANT_DTYPE_##name:                                                                                           \
    out->real = kjit_range_load_##name(tensor, &box);                                                                  \
    break;
    INTEGER(uint8)
    INTEGER(int8) INTEGER(int16) INTEGER(int32) INTEGER(int64) REAL(fp16) REAL(bf16) REAL(fp32) REAL(fp64)
#undef INTEGER
#undef REAL
  }
}

/* Inputs are one value each, except q and k, which go over the block. The block's ends q1 and k1 are the first
 * positions behind it. */
static void range_leaf(const struct kjit_variant_arguments *arguments, const struct variant_node *node,
                       const struct variant_block *block, union range *out) {
  const struct variant_place place = {.b = block->b, .h = block->h};
  const uint32_t bits = node->operation == VARIANT_SCALAR ? arguments->scalars[node->payload] : node->payload;
  if (node->operation == VARIANT_INPUT && node->payload == INPUT_Q)
    out->integer = kjit_range_between(block->q0, block->q1 - 1);
  else if (node->operation == VARIANT_INPUT && node->payload == INPUT_K)
    out->integer = kjit_range_between(block->k0, block->k1 - 1);
  else if (node->operation == VARIANT_INPUT)
    out->integer =
        kjit_range_between(input_of(arguments, &place, node->payload), input_of(arguments, &place, node->payload));
  else if (node->type == TYPE_real)
    out->real = kjit_range_real_between(float_of(bits), float_of(bits));
  else if (node->type == TYPE_truth)
    out->truth = kjit_range_truth_of(bits != 0);
  else
    out->integer = kjit_range_between((int32_t)bits, (int32_t)bits);
}

static void range_operation(const struct variant_node *node, const union range *ranges, union range *out) {
  const union range *const a = &ranges[node->operands[0]], *const b = &ranges[node->operands[1]];
  const union range *const c = &ranges[node->operands[2]];
  switch (node->operation) {
#define ONE(name, result, operand, word)                                                                               \
  case VARIANT_##name:                                                                                                 \
    out->result = kjit_range_##name(a->operand);                                                                       \
    break;
#define TWO(name, result, operand, word)                                                                               \
  case VARIANT_##name:                                                                                                 \
    out->result = kjit_range_##name(a->operand, b->operand);                                                           \
    break;
#define THREE(name, result, operand, word)                                                                             \
  case VARIANT_##name:                                                                                                 \
    out->result = kjit_range_##name(a->truth, b->operand, c->operand);                                                 \
    break;
    VARIANT_UNARY(ONE)
    VARIANT_BINARY(TWO)
    VARIANT_WHERE(THREE)
#undef ONE
#undef TWO
#undef THREE
  default: /* the opaque ones */
    out->real = kjit_range_real_any();
  }
}

/* The mask over a whole block: 0 if it hides every key from every row, 2 if it shows all of them, and 1 if the block
 * has to be decided element by element. Ranges are never too narrow, so 0 and 2 are certain; 1 may be said of a block
 * that is all of one kind. */
int variant_block_at(const kjit_attention_variant *variant, const struct kjit_variant_arguments *arguments,
                     const struct variant_block *block) {
  union range ranges[VARIANT_WRITTEN_NODES_MAX + 100];
  const struct variant_program *const program = &variant->programs.mask;
  if (variant->mask == VARIANT_NONE) return 2;
  for (size_t i = 0; i < program->count; i++) {
    const struct variant_node *const node = &program->nodes[i];
    if (node->operation == VARIANT_LOAD)
      range_load(variant, arguments, node, ranges, &ranges[i]);
    else if (node->operation < VARIANT_LOAD)
      range_leaf(arguments, node, block, &ranges[i]);
    else
      range_operation(node, ranges, &ranges[i]);
  }
  const kjit_range_truth truth = ranges[program->results[0]].truth;
  return truth == KJIT_RANGE_FALSE ? 0 : truth == KJIT_RANGE_TRUE ? 2 : 1;
}
