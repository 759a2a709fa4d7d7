/* What the parts of a serving trial tell one another: where things lie. */
#ifndef KJIT_TESTS_GPU_SERVING_JUDGE_H
#define KJIT_TESTS_GPU_SERVING_JUDGE_H

#include "serving_trial.h"

/* Element of the cache at which a position of a sequence begins, of head 0 of k; v lies v_base further. */
size_t serving_slot(const struct serving_trial *trial, int b, int position);

/* The row of the cache, or of the page table, that a sequence has. */
int serving_cache_row(const struct serving_case *c, int b);

/* Fill in trial->args, and the int32 arrays. */
void serving_fill_args(struct serving_trial *trial);

/* Bytes of an element of the cache. */
size_t serving_cache_bytes(const struct serving_case *c);

/* What an element of the cache is multiplied by; 1 where it has 16 bits. */
float serving_descale(const struct serving_trial *trial, int b, int head, bool is_v);

/* The value of element `at` of a copy of the cache. */
double serving_cached(const struct serving_trial *trial, const void *cache, size_t at, float descale);

/* One row of q of one query head, rotated. */
void serving_query(const struct serving_trial *trial, int b, int row, int head, double *out);

/* The position by which the first row of a sequence is rotated. */
int serving_rotary_position(const struct serving_trial *trial, int b);

#endif
