/* Classes of problems: one row of a tuned table serves a neighbourhood. Pure. docs/tune.md shows the buckets. */
#ifndef KJIT_ATTENTION_TUNE_TUNE_CLASS_H
#define KJIT_ATTENTION_TUNE_TUNE_CLASS_H

#include <stdbool.h>

#include <kjit/attention.h>

#include "family/field_table.h"

/* X(name, kind, text). Fields that a config must fit are exact; the others hold the name of a bucket. */
#define TUNE_CLASS_FIELDS(X)                                                                                           \
  X(dtype, DTYPE, "element type")                                                                                      \
  X(causal, BOOL, "the mask")                                                                                          \
  X(head_dim, INT, "columns of q and k")                                                                               \
  X(head_dim_v, INT, "columns of v and o")                                                                             \
  X(group, INT, "query heads for each key head")                                                                       \
  X(seq_q, INT, "bucket of the query length")                                                                          \
  X(seq_kv, INT, "bucket of the key length")                                                                           \
  X(pairs, INT, "bucket of batch * heads_q")

/* The members leave no padding between them, so that a class can be hashed and compared as bytes. */
struct tune_class {
#define TUNE_CLASS_MEMBER(name, kind, text) int32_t name;
  TUNE_CLASS_FIELDS(TUNE_CLASS_MEMBER)
#undef TUNE_CLASS_MEMBER
};

/* The table of a class's fields, for comparing and for the text form of family/pair_form.h. */
extern const struct field_table tune_class_fields;

/* Enough for every class as text, with the NUL. */
#define TUNE_CLASS_TEXT_MAX 192

/* The bucket of a length: up to 256 the least of 1, 8, 16, 32, 64, 128, 192, 256 that holds it, since there it decides
 * how many tiles there are; beyond, the power of two that it is nearest to by ratio, so that 4095 and 4097 are with
 * 4096. A bucket's name is in the bucket. `length` is from 1 to INT32_MAX. */
int32_t tune_class_length(int64_t length);

/* The bucket of a count: the power of two that it is nearest to by ratio. From 1 on; 2^30 and more are one bucket. */
int32_t tune_class_count(int64_t count);

/* The class of a problem whose defaults are filled in. */
void tune_class_of(const kjit_attention_problem *problem, struct tune_class *out);

/* True when the class decides on this field of a family; `*value` is its value then. The planner decides on the others.
 * Fields are found by their names, which mean the same in every family that computes attention. `grouped` is 1 where
 * query heads share key heads, although a problem with a single key head is not grouped: its fit (attention_family.h)
 * sets that. */
bool tune_class_gives(const struct tune_class *class, const kjit_field_info *field, int32_t *value);

/* Check that problems can be of this class: values in range, buckets by their names. KJIT_ERR_INVALID_CONFIG says what
 * is wrong. */
kjit_status tune_class_check(const struct tune_class *class, kjit_error *error);

#endif
