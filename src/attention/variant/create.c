/* Makes a variant from its text: declarations are checked, the texts parsed, the mask taken out of the score,
 * intervals, classes and the derivative found, and the kernel's header printed.
 *
 * Threads: a variant is read only once it is made; its reference count is atomic. */
#include "attention/variant/variant.h"

#include <string.h>

#include "attention/variant/create.h"
#include "attention/variant/dtypes.h"
#include "attention/variant/intervals.h"
#include "attention/variant/print.h"
#include "attention/variant/score_class.h"
#include "base/error.h"

/* 6,000 nodes of at most 120 bytes each, in six functions, come nowhere near. */
#define HEADER_BYTES_MAX (8u << 20)

/* -- Declarations -------------------------------------------------------------------------------------------------- */

/* A scalar's or tensor's name is used in the text, and printed into messages: an identifier that is no word of the
 * language. */
static kjit_status check_name(const char *what, size_t index, const char *name, kjit_error *error) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
  if (!name || !*name || strspn(name, letters) != strlen(name) || (*name >= '0' && *name <= '9') || strlen(name) > 64)
    return error_set(error, KJIT_ERR_INVALID_ARG,
                     "%s[%zu].name: must be an identifier of at most 64 letters, digits "
                     "and _",
                     what, index);
  if (variant_is_reserved(name, strlen(name)))
    return error_set(error, KJIT_ERR_INVALID_ARG, "%s[%zu].name: \"%s\" is a word of the language", what, index, name);
  return KJIT_OK;
}

static bool is_repeated(const kjit_attention_variant *variant, const char *name) {
  for (size_t i = 0; i < variant->scalar_count; i++)
    if (!strcmp(variant->scalar_names[i], name)) return true;
  for (size_t i = 0; i < variant->tensor_count; i++)
    if (!strcmp(variant->tensor_names[i], name)) return true;
  return false;
}

/* What a load of this dtype gives: an integer, a real number or truth. */
static bool find_dtype(int32_t dtype, uint8_t *type) {
  static const struct {
    int32_t dtype;
    uint8_t type;
  } rows[] = {
#define ROW(name, number, gives) {number, TYPE_##gives},
      VARIANT_DTYPES(ROW)
#undef ROW
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (rows[i].dtype != dtype) continue;
    *type = rows[i].type;
    return true;
  }
  return false;
}

static kjit_status declare_scalar(kjit_attention_variant *variant, size_t index, const kjit_variant_scalar *scalar,
                                  kjit_error *error) {
  const kjit_status status = check_name("scalars", index, scalar->name, error);
  if (status != KJIT_OK) return status;
  if (scalar->kind != KJIT_VARIANT_INT32 && scalar->kind != KJIT_VARIANT_FP32)
    return error_set(error, KJIT_ERR_INVALID_ARG, "scalars[%zu].kind: must be KJIT_VARIANT_INT32 or KJIT_VARIANT_FP32",
                     index);
  if (is_repeated(variant, scalar->name))
    return error_set(error, KJIT_ERR_INVALID_ARG, "scalars[%zu].name: \"%s\" is declared twice", index, scalar->name);
  char *const name = mem_strdup(&variant->mem, scalar->name);
  if (!name) return error_no_memory(error);
  variant->scalar_names[variant->scalar_count] = name;
  variant->scalar_kinds[variant->scalar_count] = scalar->kind;
  variant->slots.types[variant->scalar_count] = scalar->kind == KJIT_VARIANT_FP32 ? TYPE_real : TYPE_integer;
  variant->slots.count = ++variant->scalar_count;
  return KJIT_OK;
}

/* The count is raised last, so that variant_release() frees exactly the names that were copied. */
static kjit_status declare_tensor(kjit_attention_variant *variant, size_t index, const kjit_variant_tensor *tensor,
                                  kjit_error *error) {
  const kjit_status status = check_name("tensors", index, tensor->name, error);
  if (status != KJIT_OK) return status;
  if (!find_dtype(tensor->dtype, &variant->tree.tensor_types[index]))
    return error_set(
        error, KJIT_ERR_INVALID_ARG,
        "tensors[%zu].dtype: %d is no type that a variant reads: uint8 0, int8 1, int16 2, int32 3, int64 4, "
        "fp16 5, fp32 6, fp64 7, bool 11, bf16 15",
        index, (int)tensor->dtype);
  if (tensor->rank > 4) return error_set(error, KJIT_ERR_INVALID_ARG, "tensors[%zu].rank: must be at most 4", index);
  if (is_repeated(variant, tensor->name))
    return error_set(error, KJIT_ERR_INVALID_ARG, "tensors[%zu].name: \"%s\" is declared twice", index, tensor->name);
  char *const name = mem_strdup(&variant->mem, tensor->name);
  if (!name) return error_no_memory(error);
  variant->tree.tensor_ranks[index] = (uint8_t)tensor->rank;
  variant->tensor_dtypes[index] = tensor->dtype;
  variant->tensor_names[variant->tensor_count++] = name;
  return KJIT_OK;
}

static kjit_status declare(kjit_attention_variant *variant, const kjit_attention_variant_text *text,
                           kjit_error *error) {
  kjit_status status = KJIT_OK;
  if (text->scalar_count > KJIT_VARIANT_SCALARS_MAX) return error_invalid(error, "scalar_count", "must be at most 32");
  if (text->tensor_count > KJIT_VARIANT_TENSORS_MAX) return error_invalid(error, "tensor_count", "must be at most 8");
  if (text->scalar_count && !text->scalars) return error_invalid(error, "scalars", "must not be NULL");
  if (text->tensor_count && !text->tensors) return error_invalid(error, "tensors", "must not be NULL");
  for (size_t i = 0; i < text->scalar_count && status == KJIT_OK; i++)
    status = declare_scalar(variant, i, &text->scalars[i], error);
  for (size_t i = 0; i < text->tensor_count && status == KJIT_OK; i++)
    status = declare_tensor(variant, i, &text->tensors[i], error);
  return status;
}

/* -- Trees --------------------------------------------------------------------------------------------------------- */

/* Score and mask are parsed into one tree with one list of slots, so that what both say is computed once and a number
 * that both contain has its own slot in each place. */
static kjit_status parse_one(kjit_attention_variant *variant, const kjit_attention_variant_text *text, bool is_mask,
                             kjit_error *error) {
  const struct variant_scope scope = {.scalars = (const char *const *)variant->scalar_names,
                                      .scalar_types = variant->slots.types,
                                      .scalar_count = variant->scalar_count,
                                      .tensors = (const char *const *)variant->tensor_names,
                                      .tensor_count = variant->tensor_count};
  const struct expression_source source = {.text = is_mask ? text->mask : text->score,
                                           .what = is_mask ? "mask" : "score",
                                           .file = text->file,
                                           .line = text->line,
                                           .column = 1};
  return variant_parse(&variant->tree, &variant->slots, &scope, &source, is_mask ? TYPE_truth : TYPE_real,
                       is_mask ? &variant->mask : &variant->score, error);
}

static bool build_program(kjit_attention_variant *variant, struct variant_program *program, variant_node_index root) {
  return variant_program_build(program, &variant->tree, &root, 1);
}

static bool build_tile_program(kjit_attention_variant *variant) {
  const struct variant_tree *const tree = &variant->tree;
  if (!variant->class.tile) return variant_program_build(&variant->programs.tile, tree, NULL, 0);
  const struct variant_node *const load = &tree->nodes[variant->class.term];
  return variant_program_build(&variant->programs.tile, tree, load->operands, variant_operand_count(tree, load) - 1u);
}

/* One program for each question that a kernel or the host asks. `text` has the score and the mask together, for
 * the canonical text, whose digest tells equal variants from different ones. */
static bool build_programs(kjit_attention_variant *variant) {
  const struct variant_tree *const tree = &variant->tree;
  const variant_node_index both[] = {variant->score, variant->mask};
  variant_node_index bounds[VARIANT_RESULTS_MAX];
  for (size_t i = 0; i < variant->intervals.count; i++) {
    bounds[2 * i] = variant->intervals.pieces[i].lo;
    bounds[2 * i + 1] = variant->intervals.pieces[i].hi;
  }
  return variant_program_build(&variant->programs.text, tree, both, 2) &&
         variant_program_build(&variant->programs.bounds, tree, bounds, 2 * variant->intervals.count) &&
         build_program(variant, &variant->programs.score, variant->score) &&
         build_program(variant, &variant->programs.mask, variant->mask) &&
         build_program(variant, &variant->programs.score_grad, variant->score_grad) &&
         build_program(variant, &variant->programs.slope, variant->class.slope) &&
         build_program(variant, &variant->programs.term, variant->class.term) &&
         build_program(variant, &variant->programs.inner, variant->class.inner) &&
         build_program(variant, &variant->programs.step, variant->class.step) && build_tile_program(variant);
}

/* A term that is one load of 16 bits, along k in the tensor's last axis. */
static uint8_t tile_of(const kjit_attention_variant *variant) {
  const struct variant_tree *const tree = &variant->tree;
  if (variant->class.term == VARIANT_NONE) return 0;
  const struct variant_node *const load = &tree->nodes[variant->class.term];
  if (load->operation != VARIANT_LOAD) return 0;
  const size_t last = variant_operand_count(tree, load) - 1u;
  const int32_t dtype = variant->tensor_dtypes[load->payload];
  if (dtype != VARIANT_DTYPE_fp16 && dtype != VARIANT_DTYPE_bf16) return 0;
  for (size_t i = 0; i <= last && i < 4; i++) {
    const struct variant_node *const index = &tree->nodes[load->operands[i]];
    const bool is_k = index->operation == VARIANT_INPUT && index->payload == INPUT_K;
    if (i == last ? !is_k : (index->uses & USES_K) != 0) return 0;
  }
  return (uint8_t)(load->payload + 1);
}

/* The axis of such a load along which queries follow each other, plus 1. */
static uint8_t tile_rows_of(const kjit_attention_variant *variant) {
  const struct variant_tree *const tree = &variant->tree;
  if (!variant->class.tile) return 0;
  const struct variant_node *const load = &tree->nodes[variant->class.term];
  uint8_t rows = 0;
  for (uint8_t i = 0; i + 1u < variant_operand_count(tree, load); i++) {
    const struct variant_node *const index = &tree->nodes[load->operands[i]];
    if (!(index->uses & USES_Q)) continue;
    if (rows != 0 || index->operation != VARIANT_INPUT) return 0;
    rows = (uint8_t)(i + 1u);
  }
  return rows;
}

/* A term may have a peak within a row, and be evaluated at a few keys to find it. */
static bool has_peak(const kjit_attention_variant *variant) {
  const struct variant_program *const term = &variant->programs.term;
  bool has_keys = false, has_loads = false;
  for (size_t i = 0; i < term->count; i++) {
    const bool uses_key = (term->nodes[i].uses & USES_K) != 0;
    has_keys = has_keys || uses_key;
    has_loads = has_loads || (uses_key && term->nodes[i].operation == VARIANT_LOAD);
  }
  return has_keys && !has_loads && variant->class.step == VARIANT_NONE;
}

/* What follows from the trees. A mask that is always true is none. */
static bool find_out(kjit_attention_variant *variant) {
  struct variant_tree *const tree = &variant->tree;
  tree->limit = VARIANT_NODES_MAX;
  variant_split_mask(tree, &variant->score, &variant->mask);
  if (variant->mask != VARIANT_NONE && variant_is_truth(tree, variant->mask, true)) variant->mask = VARIANT_NONE;
  variant_derive_intervals(tree, variant->mask, &variant->intervals);
  variant_classify_score(tree, variant->score, &variant->class);
  variant->class.tile = tile_of(variant);
  variant->class.tile_rows = tile_rows_of(variant);
  variant->score_grad = variant_derive(tree, variant->score, variant_input(tree, INPUT_SCORE));
  if (!variant_tree_is_whole(tree) || !build_programs(variant)) return false;
  variant->class.has_peak = has_peak(variant);
  return variant_find_gradients(variant);
}

/* -- Texts --------------------------------------------------------------------------------------------------------- */

/* Texts that grow beyond the bound fail like memory that runs out; no text within VARIANT_NODES_MAX does. */
static bool print_all(kjit_attention_variant *variant) {
  struct text canonical, header;
  text_init(&canonical, &variant->mem, HEADER_BYTES_MAX);
  text_init(&header, &variant->mem, HEADER_BYTES_MAX);
  variant_print_types(variant, &canonical);
  variant_print_canonical(variant, &canonical);
  variant_print_header(variant, &header);
  const bool done = !canonical.failed && !header.failed;
  if (done) {
    digest_of(&variant->digest, canonical.data, canonical.bytes);
    variant->header_bytes = header.bytes;
    variant->canonical = text_take(&canonical);
    variant->header = text_take(&header);
  }
  text_finish(&canonical);
  text_finish(&header);
  return done && variant->canonical && variant->header;
}

/* A score that is not given is s itself, and a mask that is not given stays VARIANT_NONE: every key is seen. */
kjit_status variant_create(kjit_attention_variant **out, const struct mem *mem, const kjit_attention_variant_text *text,
                           kjit_error *error) {
  kjit_attention_variant *const variant = mem_alloc(mem, sizeof *variant);
  *out = NULL;
  if (!variant) return error_no_memory(error);
  variant->mem = *mem;
  atomic_init(&variant->references, 1);
  variant_tree_init(&variant->tree, &variant->mem);
  variant->mask = VARIANT_NONE;
  kjit_status status = declare(variant, text, error);
  variant->score = variant_input(&variant->tree, INPUT_SCORE);
  if (status == KJIT_OK && text->score) status = parse_one(variant, text, false, error);
  if (status == KJIT_OK && text->mask) status = parse_one(variant, text, true, error);
  if (status == KJIT_OK && !(find_out(variant) && print_all(variant))) status = error_no_memory(error);
  if (status == KJIT_OK)
    *out = variant;
  else
    variant_release(variant);
  return status;
}

void variant_release(kjit_attention_variant *variant) {
  if (!variant || atomic_fetch_sub_explicit(&variant->references, 1, memory_order_acq_rel) != 1) return;
  const struct mem mem = variant->mem;
  struct variant_program *const programs[] = {
      &variant->programs.text,   &variant->programs.score, &variant->programs.mask, &variant->programs.score_grad,
      &variant->programs.bounds, &variant->programs.slope, &variant->programs.term, &variant->programs.inner,
      &variant->programs.step,   &variant->programs.tile};
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
    variant_program_finish(programs[i], &mem);
  variant_release_gradients(variant);
  for (size_t i = 0; i < variant->scalar_count; i++)
    mem_free(&mem, variant->scalar_names[i]);
  for (size_t i = 0; i < variant->tensor_count; i++)
    mem_free(&mem, variant->tensor_names[i]);
  mem_free(&mem, variant->canonical);
  mem_free(&mem, variant->header);
  variant_tree_finish(&variant->tree);
  mem_free(&mem, variant);
}
