/* One attention variant on one problem: inputs made on the host, the launch, and a float64 reference on the host that
 * knows the variant by two C functions. */
#ifndef KJIT_TESTS_GPU_VARIANT_TRIAL_H
#define KJIT_TESTS_GPU_VARIANT_TRIAL_H

#include <stdbool.h>

#include <kjit/kjit.h>

#include "support/card.h"

/* What score and mask functions may read, on the host. Sizes: `keys` is the larger of both lengths. */
struct variant_world {
  int batch, heads, heads_kv, seq_q, seq_kv, keys;
  int32_t *doc;           /* (batch, keys): document of a position, rising   */
  int32_t *length;        /* (batch): keys of a batch entry                   */
  uint8_t *flag;          /* (keys): one of eight is true                     */
  float *slope;           /* (heads)                                          */
  float *bias;            /* (1, heads, seq_q, seq_kv)                        */
  uint16_t *level;        /* the bias in bf16, exactly                        */
  float *table;           /* (keys): by key, or by distance                   */
  float *sinks;           /* (heads)                                          */
  int32_t window, prefix; /* numbers that the texts call window and prefix */
  float cap;
};

struct variant_place_of {
  int b, h, q, k;
};

/* A variant of the table in variant_cases.c. */
struct variant_case {
  const char *name;
  const char *score, *mask; /* texts; NULL: none */
  double (*score_at)(const struct variant_world *world, double s, struct variant_place_of at);
  bool (*mask_at)(const struct variant_world *world, struct variant_place_of at);
  int block; /* block lists with blocks of this many queries and keys; 0: none */
  bool causal, sinks;
  bool keeps;       /* blocks are kept: what is judged is the call behind the one that filled the memory */
  bool hides_nan;   /* K and V of keys far from all that the mask sees are NaN; without `block` and `causal` */
  double tolerance; /* of the 16-bit reference's error; 0: 2 */
  double lse_tolerance;
  /* Set plain members of the arguments in place of the texts. */
  void (*set)(kjit_attention_args *args, const struct variant_world *world, kjit_tensor tensors[2]);
};

struct variant_shape {
  int batch, heads, heads_kv, seq_q, seq_kv, head_dim;
  bool bf16;
};

struct variant_report {
  double error, bound, lse_error, lse_bound;
  bool passed;
  char why[256];
};

/* Run a case on a shape; with config NULL the planner chooses. The status is that of the launch. */
kjit_status variant_trial_run(const struct card *card, kjit_runtime *runtime, const struct variant_case *one,
                              const struct variant_shape *shape, const kjit_config *config, uint64_t seed,
                              struct variant_report *report, kjit_error *error);

extern const struct variant_case variant_cases[];
extern const size_t variant_case_count;

const struct variant_case *variant_case_named(const char *name);

#endif
