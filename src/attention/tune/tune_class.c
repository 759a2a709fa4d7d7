/* Classes of problems: their fields, the buckets of lengths and counts, and what a class decides of a config.
 *
 * Threads: everything here is pure. */
#include "attention/tune/tune_class.h"

#include <string.h>

#include "attention/rule.h"
#include "base/error.h"

#define COUNT(name, kind, text) +1
#define ROW(name, kind, text)                                                                                          \
  {#name, "", text, KJIT_FIELD_##kind, (uint32_t)offsetof(struct tune_class, name), NULL, 0, NULL},

enum { FIELD_COUNT = 0 TUNE_CLASS_FIELDS(COUNT) };

_Static_assert(sizeof(struct tune_class) == 4 * FIELD_COUNT, "a class is its fields, without padding");

static const kjit_field_info rows[FIELD_COUNT] = {TUNE_CLASS_FIELDS(ROW)};

const struct field_table tune_class_fields = {
    .family = "a class",
    .type = "tune_class",
    .fields = rows,
    .count = FIELD_COUNT,
    .config_bytes = sizeof(struct tune_class),
};

/* Up to this length a bucket ends where another tile begins. */
#define SHORT_LENGTH 256

/* The largest bucket of counts: the largest power of two whose name fits. */
#define MOST_COUNT (INT32_C(1) << 30)

static int64_t floor_power(int64_t value) {
  return INT64_C(1) << (63 - __builtin_clzll((unsigned long long)value));
}

int32_t tune_class_count(int64_t count) {
  if (count >= MOST_COUNT) return MOST_COUNT;
  const int64_t below = floor_power(count);
  /* If count / below > sqrt(2), the next power of two is nearer. */
  return (int32_t)(count * count > 2 * below * below ? 2 * below : below);
}

int32_t tune_class_length(int64_t length) {
  /* The buckets in steps of 8: they change where tiles of 64 rows and packed heads begin and end. */
  static const int16_t ends[SHORT_LENGTH / 8 + 1] = {1,   8,   16,  32,  32,  64,  64,  64,  64,  128, 128,
                                                     128, 128, 128, 128, 128, 128, 192, 192, 192, 192, 192,
                                                     192, 192, 192, 256, 256, 256, 256, 256, 256, 256, 256};
  if (length > SHORT_LENGTH) return tune_class_count(length);
  return length == 1 ? 1 : ends[(length + 7) / 8];
}

/* Query heads for each key head. Both numbers fit 32 bits, whose division is twice as fast as one of 64. */
static int32_t group_of(const kjit_attention_problem *problem) {
  return (int32_t)((uint32_t)problem->heads_q / (uint32_t)problem->heads_kv);
}

/* What decides which kernel is the fastest: the exact traits, and lengths and counts by their buckets. `pairs` says how
 * many tiles there are to share among the SMs, whether they come from the batch or from heads. */
void tune_class_of(const kjit_attention_problem *problem, struct tune_class *out) {
  *out = (struct tune_class){.dtype = problem->dtype,
                             .causal = problem->flags & KJIT_ATTENTION_CAUSAL ? 1 : 0,
                             .head_dim = (int32_t)problem->head_dim,
                             .head_dim_v = (int32_t)problem->head_dim_v,
                             .group = group_of(problem),
                             .seq_q = tune_class_length(problem->seq_q),
                             .seq_kv = tune_class_length(problem->seq_kv),
                             .pairs = tune_class_count(problem->batch * problem->heads_q)};
}

/* The larger head size in whole 16s, at least 32, because flash_forward computes in these. */
static int32_t whole_head(const struct tune_class *class) {
  const int32_t larger = class->head_dim > class->head_dim_v ? class->head_dim : class->head_dim_v;
  const int32_t whole = larger > INT32_MAX - 15 ? larger : (larger + 15) / 16 * 16;
  return whole < 32 ? 32 : whole;
}

bool tune_class_gives(const struct tune_class *class, const kjit_field_info *field, int32_t *value) {
  const struct {
    const char *name;
    int32_t value;
  } given[] = {{"dtype", class->dtype},       {"causal", class->causal},         {"grouped", class->group > 1},
               {"head_dim", class->head_dim}, {"head_dim_v", class->head_dim_v}, {"d_head", whole_head(class)}};
  for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
    if (strcmp(given[i].name, field->name) != 0) continue;
    *value = given[i].value;
    return true;
  }
  return false;
}

/* A class read from a file may have any numbers, so each is compared with what a problem can have. */
kjit_status tune_class_check(const struct tune_class *class, kjit_error *error) {
  if (class->dtype != KJIT_FP16 && class->dtype != KJIT_BF16)
    return rule_broken(error, "dtype", class->dtype, "FP16 (5) or BF16 (15)");
  if (class->causal != 0 && class->causal != 1) return rule_broken(error, "causal", class->causal, "0 or 1");
  for (size_t i = 0; i < tune_class_fields.count; i++) {
    const kjit_field_info *field = &tune_class_fields.fields[i];
    const int32_t value = field_get(field, class);
    if (field->kind == KJIT_FIELD_INT && value < 1) return rule_broken(error, field->name, value, "at least 1");
  }
  if (tune_class_length(class->seq_q) != class->seq_q)
    return rule_broken(error, "seq_q", class->seq_q, "the name of a bucket");
  if (tune_class_length(class->seq_kv) != class->seq_kv)
    return rule_broken(error, "seq_kv", class->seq_kv, "the name of a bucket");
  if (tune_class_count(class->pairs) != class->pairs)
    return rule_broken(error, "pairs", class->pairs, "the name of a bucket");
  return KJIT_OK;
}
