/* The public functions over attention variants. Every argument is checked here.
 *
 * Threads: variants are read only. */
#include <string.h>

#include "attention/variant/create.h"
#include "attention/variant/explain.h"
#include "attention/variant/print.h"
#include "base/error.h"
#include "base/struct_intake.h"

/* The smallest structs that are accepted end with these members. */
#define TEXT_OLDEST_BYTES       (offsetof(kjit_attention_variant_text, line) + sizeof(uint32_t))
#define EVALUATION_OLDEST_BYTES (offsetof(kjit_variant_evaluation, seen) + sizeof(int32_t))

kjit_status kjit_attention_variant_create(kjit_attention_variant **out, const kjit_attention_variant_text *text,
                                          kjit_error *error) {
  kjit_attention_variant_text local;
  struct mem mem;
  error_clear(error);
  (void)mem_init(&mem, NULL);
  if (!out) return error_invalid(error, "out", "must not be NULL");
  *out = NULL;
  const kjit_status status = struct_intake(&local, sizeof local, text, TEXT_OLDEST_BYTES, "text", error);
  return status == KJIT_OK ? variant_create(out, &mem, &local, error) : status;
}

void kjit_attention_variant_free(kjit_attention_variant *variant) {
  variant_release(variant);
}

kjit_status kjit_attention_variant_get_info(const kjit_attention_variant *variant, kjit_variant_info *info,
                                            kjit_error *error) {
  error_clear(error);
  if (!variant) return error_invalid(error, "variant", "must not be NULL");
  size_t operations = 0;
  for (size_t i = 0; i < variant->programs.text.count; i++)
    operations += variant->programs.text.nodes[i].operation >= VARIANT_LOAD;
  kjit_variant_info local = {.struct_size = sizeof local,
                             .has_score = !variant->class.is_identity,
                             .has_mask = variant->mask != VARIANT_NONE,
                             .affine = variant->class.is_affine,
                             .pointwise = variant->class.is_pointwise,
                             .terms = variant->class.terms,
                             .intervals = (uint32_t)variant->intervals.count,
                             .operations = (uint32_t)operations,
                             .literal_count = (uint32_t)(variant->slots.count - variant->scalar_count)};
  digest_to_hex(&variant->digest, local.digest);
  return struct_fill(info, &local, sizeof local, "info", error);
}

/* Copy a text to a caller's buffer, cut to it. */
static kjit_status give(const char *from, size_t bytes, char *text, size_t capacity, size_t *needed,
                        kjit_error *error) {
  if (needed) *needed = bytes + 1;
  if (!text && capacity) return error_invalid(error, "text", "must not be NULL");
  if (capacity) {
    const size_t copied = bytes < capacity - 1 ? bytes : capacity - 1;
    memcpy(text, from, copied);
    text[copied] = '\0';
  }
  if (!capacity && needed) return KJIT_OK; /* the size alone was asked for */
  if (capacity > bytes) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_ARG, "capacity: must be at least %zu", bytes + 1);
}

kjit_status kjit_attention_variant_explain(const kjit_attention_variant *variant, char *text, size_t capacity,
                                           size_t *needed, kjit_error *error) {
  struct text out;
  error_clear(error);
  if (!variant) return error_invalid(error, "variant", "must not be NULL");
  text_init(&out, &variant->mem, SIZE_MAX / 4);
  variant_explain(variant, &out);
  const kjit_status status =
      out.failed ? error_no_memory(error) : give(out.data, out.bytes, text, capacity, needed, error);
  text_finish(&out);
  return status;
}

kjit_status kjit_attention_variant_print_kernel(const kjit_attention_variant *variant, char *text, size_t capacity,
                                                size_t *needed, kjit_error *error) {
  error_clear(error);
  if (!variant) return error_invalid(error, "variant", "must not be NULL");
  return give(variant->header, variant->header_bytes, text, capacity, needed, error);
}

kjit_status kjit_attention_variant_evaluate(const kjit_attention_variant *variant, kjit_variant_evaluation *evaluation,
                                            kjit_error *error) {
  kjit_variant_evaluation local;
  struct kjit_variant_arguments arguments;
  error_clear(error);
  if (!variant) return error_invalid(error, "variant", "must not be NULL");
  kjit_status status = struct_intake(&local, sizeof local, evaluation, EVALUATION_OLDEST_BYTES, "evaluation", error);
  if (status != KJIT_OK) return status;
  if (local.seq_q < 1 || local.seq_kv < 1) return error_invalid(error, "seq_q and seq_kv", "must be at least 1");
  if (local.heads_q < 0 || local.heads_kv < 0)
    return error_invalid(error, "heads_q and heads_kv", "must not be negative");
  status = variant_check_tensors(variant, local.scalar_values, local.tensors, KJIT_DEVICE_HOST, error);
  if (status != KJIT_OK) return status;
  const struct variant_problem problem = {local.seq_q, local.seq_kv, local.heads_q ? local.heads_q : 1,
                                          local.heads_kv ? local.heads_kv : 1};
  const struct variant_place place = {local.b, local.h, local.q, local.k};
  variant_fill_arguments(variant, &problem, local.scalar_values, local.tensors, &arguments);
  evaluation->new_score = variant_score_at(variant, &arguments, local.score, &place);
  evaluation->score_grad = variant_score_grad_at(variant, &arguments, local.score, &place);
  evaluation->seen = variant_mask_at(variant, &arguments, &place);
  return KJIT_OK;
}
