/* The plain members of the attention arguments (window, softcap, ALiBi slopes, chunk, bias), written as variants: the
 * members that are present decide the text, their values are its scalars and tensors. Each text is read once in a
 * process.
 *
 * Threads: the table of variants is read without a lock. Two threads that make the same one at the same time both make
 * it; the second finds the first's in the table and frees its own. */
#include <string.h>

#include "attention/variant/create.h"
#include "attention/variant/dtypes.h"
#include "base/error.h"
#include "base/text.h"
#include "base/threads/push.h"

#define ALIBI_CHOICES 5 /* none, by head, by batch and head; of both, where no key lies ahead */
#define BIAS_CHOICES  4 /* none, fp16, bf16, fp32 */
#define FLAG_CHOICES  32

/* Never freed: one small object for each kind of call that the process makes. */
static struct push_place variants[FLAG_CHOICES * ALIBI_CHOICES * BIAS_CHOICES];

static bool bias_choice(const struct variant_builtin_members *members, size_t *choice) {
  *choice = 0;
  if (!members->has_bias) return true;
  *choice = members->bias_dtype == VARIANT_DTYPE_fp16   ? 1
            : members->bias_dtype == VARIANT_DTYPE_bf16 ? 2
            : members->bias_dtype == VARIANT_DTYPE_fp32 ? 3
                                                        : 0;
  return *choice != 0;
}

/* Row q stands at key q + seq_kv - seq_q. The window is compared as a difference, so that 2147483647 is no bound. */
static void write_mask(const struct variant_builtin_members *members, struct text *mask) {
  const char *joint = "";
  text_append(mask, "let place = q + seq_kv - seq_q; ");
  if (members->has_window_left) {
    text_append(mask, "place - k <= window_left");
    joint = " and ";
  }
  if (members->has_window_right) {
    text_appendf(mask, "%sk - place <= window_right", joint);
    joint = " and ";
  }
  if (members->is_causal) {
    text_appendf(mask, "%sk <= place", joint);
    joint = " and ";
  }
  if (members->has_chunk) text_appendf(mask, "%sk // chunk == place // chunk", joint);
}

static void write_score(const struct variant_builtin_members *members, struct text *score) {
  text_append(score, members->has_softcap ? "softcap * tanh(score / softcap)" : "score");
  if (members->has_bias) text_append(score, " + bias[b, h, q, k]");
  /* Where no key lies ahead of its query the distance needs no abs(), and is linear along a row. */
  if (members->alibi_rank)
    text_appendf(score, " - alibi[%sh] * %s(q + seq_kv - seq_q - k)", members->alibi_rank == 2 ? "b, " : "",
                 members->alibi_is_behind ? "" : "abs");
}

static kjit_status create(kjit_attention_variant **out, const struct variant_builtin_members *members,
                          kjit_error *error) {
  char mask[256], score[160];
  struct text mask_text, score_text;
  struct mem mem;
  kjit_variant_scalar scalars[4];
  kjit_variant_tensor tensors[2];
  kjit_attention_variant_text text = kjit_attention_variant_text_default();
  (void)mem_init(&mem, NULL);
  text_init_fixed(&mask_text, mask, sizeof mask);
  text_init_fixed(&score_text, score, sizeof score);
  write_mask(members, &mask_text);
  write_score(members, &score_text);
  if (members->has_window_left) scalars[text.scalar_count++] = (kjit_variant_scalar){"window_left", KJIT_VARIANT_INT32};
  if (members->has_window_right)
    scalars[text.scalar_count++] = (kjit_variant_scalar){"window_right", KJIT_VARIANT_INT32};
  if (members->has_chunk) scalars[text.scalar_count++] = (kjit_variant_scalar){"chunk", KJIT_VARIANT_INT32};
  if (members->has_softcap) scalars[text.scalar_count++] = (kjit_variant_scalar){"softcap", KJIT_VARIANT_FP32};
  if (members->alibi_rank)
    tensors[text.tensor_count++] = (kjit_variant_tensor){"alibi", members->alibi_dtype, members->alibi_rank};
  if (members->has_bias) tensors[text.tensor_count++] = (kjit_variant_tensor){"bias", members->bias_dtype, 4};
  const bool masked = members->has_window_left || members->has_window_right || members->is_causal || members->has_chunk;
  text.score = score;
  text.mask = masked ? mask : NULL;
  text.scalars = scalars;
  text.tensors = tensors;
  return variant_create(out, &mem, &text, error);
}

kjit_status attention_variant_builtin(const kjit_attention_variant **out, const struct variant_builtin_members *members,
                                      kjit_error *error) {
  const size_t flags = (size_t)members->has_window_left | (size_t)members->has_window_right << 1 |
                       (size_t)members->is_causal << 2 | (size_t)members->has_chunk << 3 |
                       (size_t)members->has_softcap << 4;
  size_t bias;
  *out = NULL;
  if (members->alibi_rank > 2) return error_invalid(error, "alibi_slopes", "must have 1 or 2 axes");
  if (members->alibi_rank && members->alibi_dtype != VARIANT_DTYPE_fp32)
    return error_invalid(error, "alibi_slopes", "must be fp32");
  if (!bias_choice(members, &bias)) return error_invalid(error, "bias", "must be fp16, bf16 or fp32");
  const size_t alibi = members->alibi_rank + (members->alibi_rank && members->alibi_is_behind ? 2 : 0);
  const size_t index = (bias * ALIBI_CHOICES + alibi) * FLAG_CHOICES + flags;
  /* No member is present: the call has no variant, and the kernels are compiled without one. */
  if (!index) return KJIT_OK;
  *out = push_place_get(&variants[index]);
  if (*out) return KJIT_OK;
  kjit_attention_variant *made;
  const kjit_status status = create(&made, members, error);
  if (status != KJIT_OK) return status;
  *out = push_place_fill(&variants[index], made);
  if (*out != made) variant_release(made);
  return KJIT_OK;
}

/* In the order in which create() declared them. */
void attention_variant_builtin_values(const struct variant_builtin_members *members,
                                      const struct variant_builtin_values *values, int32_t *scalars,
                                      kjit_tensor *tensors) {
  if (members->has_window_left) *scalars++ = values->window_left;
  if (members->has_window_right) *scalars++ = values->window_right;
  if (members->has_chunk) *scalars++ = values->chunk;
  if (members->has_softcap) memcpy(scalars, &values->softcap, sizeof values->softcap);
  if (members->alibi_rank) *tensors++ = *values->alibi;
  if (members->has_bias) *tensors = *values->bias;
}
