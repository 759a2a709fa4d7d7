/* What a family that computes serving problems can do besides being a family. Choosing and calling name no family; a
 * faster one for an architecture is a row of serving_families[] in front of the others. All families take the argument
 * struct of kernel_src/attention_serving/params.h. */
#ifndef KJIT_ATTENTION_SERVING_SERVING_FAMILY_H
#define KJIT_ATTENTION_SERVING_SERVING_FAMILY_H

#include <stdbool.h>

#include <kjit/attention_serving.h>

#include "attention_serving/params.h"
#include "family/family.h"

/* What the choice of a kernel depends on: nothing that changes from step to step but how many rows there may be. */
struct serving_problem {
  int32_t dtype;
  int64_t head_dim, head_dim_v, heads_kv;
  int64_t group;       /* query heads that share a key head */
  int64_t packed_rows; /* at most so many rows of a sequence, times group */
  int64_t batch;       /* sequences */
  int64_t rows;        /* at most so many rows of all sequences together */
  int64_t page_size;   /* 0: no pages */
  bool softcap;
  bool is_narrow; /* k and v are of 8 bits, KJIT_FP8_E4M3 */
  bool is_plain;  /* keys from slot 0 on, strides that a tensor map can have */
  bool is_banded; /* heads of K and of V are a multiple of 64 columns apart */
  bool rotates;   /* there are rotary tables */
  bool is_mixed;  /* sequences with few rows and many keys may be among those with many rows */
  /* Every sequence has the same rows, which packed_rows counts, and its own row of the cache or of the page table, of
   * fewer than 2^26 positions, of a cache of fewer than 2^35 elements. There is no window to the left, chunk, sinks,
   * padding, or number of splits. */
  bool is_simple;
  bool is_unsplit; /* a row's keys are to be summed in one piece, whatever the batch */
  /* There are new keys, equally few for every sequence, and each is seen by some row, of which each sequence has as
   * many as q: then who computes all rows of a (sequence, key head) meets each of its new keys. */
  bool meets_new_keys;
};

enum {
  SERVING_FIELDS_MAX = 16,        /* most fields of such a family */
  SERVING_MOST_BLOCKS_PER_SM = 8, /* most runs for each multiprocessor, and as many counters */
  SERVING_MORE_COUNTERS = 16,     /* beside those of multiprocessors */
  SERVING_ARGUMENT_MAX = 2048,    /* most bytes of a kernel's argument */
  SERVING_ARGUMENT_ALIGNMENT = 64
};

struct serving_family {
  const kjit_family *family;
  const char *arch; /* the only architecture that its kernels are for, "sm_90a"; NULL when there are several */

  /* With this config the family never divides a sequence's keys, so that a sequence of up to so many packed rows on
   * many keys is left to a family that does, in a launch of its own; 0, or NULL: divides. */
  int32_t (*undivided_rows)(const int32_t *values);

  /* Its attend kernel waits (griddepcontrol) before it reads what the append pass writes: keys and values of the cache.
   * Then it is launched as a programmatic dependent of that pass, and begins beside it. Until then it may read
   * everything else, and write to its workspace alone. */
  bool waits;

  /* With this config its attend kernel can append new keys itself, where problem.meets_new_keys: such a call is one
   * launch. NULL: with none. */
  bool (*appends)(const int32_t *values);

  /* Choose the config of a pass, in canonical form. KJIT_ERR_UNSUPPORTED says why the family does not compute it. A
   * pass that the family does not have is another family's. `error` may be NULL. */
  kjit_status (*choose)(const struct serving_problem *problem, kjit_serving_pass pass, const struct family_place *place,
                        int32_t *values, kjit_error *error);

  /* Packed rows of a tile of the attend pass, a power of two, for which a schedule is made; NULL: the pass reads none.
   */
  int32_t (*tile_rows)(const int32_t *values);

  /* Blocks of threads of the attend pass, which are the runs of its schedule. */
  uint32_t (*runs)(const int32_t *values, uint32_t multiprocessors);

  /* Bytes of what so many runs write beside the result, for a problem that has this config. A multiple of 16. */
  size_t (*partial_bytes)(const int32_t *values, uint32_t runs, const struct serving_problem *problem);

  /* Make the attend pass's argument, of up to SERVING_ARGUMENT_MAX bytes, from the one that all families take. NULL: it
   * is that one. Thread-safe. */
  kjit_status (*argument)(kjit_runtime *runtime, const int32_t *values, const struct attention_serving_params *params,
                          void *argument, kjit_error *error);
};

enum { SERVING_FAMILY_COUNT = 3 };

/* The families, in the order in which they are asked. */
extern const struct serving_family *const serving_families[SERVING_FAMILY_COUNT];

/* A family's config for one pass. */
struct serving_choice {
  const struct serving_family *family;
  int32_t values[SERVING_FIELDS_MAX];
};

/* The first family that has the pass for this problem there. */
kjit_status serving_choose(const struct serving_problem *problem, kjit_serving_pass pass,
                           const struct family_place *place, struct serving_choice *out, kjit_error *error);

/* log2 of the packed rows of a tile for which a schedule of this attend pass is made; of 64 where it reads none. */
int serving_tile_shift(const struct serving_choice *attend);

#endif
