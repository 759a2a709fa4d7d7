/* An attention variant: the trees of its score and of its mask, what was found out about them, and the kernel text that
 * is printed from them. What the kernels and the planner need is in this header; kjit/attention_variant.h is the public
 * part.
 *
 * A variant is read only once it is made. Its digest says everything that can change the printed text: variants that
 * differ in names and in numbers alone have one digest, one text, and other literals. */
#ifndef KJIT_ATTENTION_VARIANT_VARIANT_H
#define KJIT_ATTENTION_VARIANT_VARIANT_H

#include <stdatomic.h>

#include <kjit/attention_variant.h>

#include "attention/variant/parse.h"
#include "attention/variant/program.h"
#include "base/digest.h"

#define VARIANT_INTERVALS_MAX 4

/* Elements of tensors that a score may read at one pair and still have the gradients of tensors. */
#define VARIANT_GRADIENTS_MAX 16

/* The name under which kernels include the printed text. */
#define VARIANT_HEADER_NAME "attention_variant.cuh"

/* Keys k with lo <= k < hi, bounds that do not depend on k. */
struct variant_interval {
  variant_node_index lo, hi; /* integers; INT32_MIN and INT32_MAX are no bounds */
};

struct variant_row_intervals {
  struct variant_interval pieces[VARIANT_INTERVALS_MAX];
  size_t count; /* 0: the mask is judged key by key */
};

/* What the score is made of. */
struct variant_score_class {
  bool is_identity;  /* score = score */
  bool is_affine;    /* score · slope(b, h, q) + term(b, h, q, k) */
  bool is_pointwise; /* depends on more than the score by its score alone */
  uint32_t terms;    /* KJIT_VARIANT_TERM_*: what is added */
  uint8_t core;      /* 0, or the operation f of a score = slope · f(inner · s) + term */
  variant_node_index slope, term, inner;
  variant_node_index step; /* what one more key adds to the term; VARIANT_NONE where that differs */
  uint8_t tile;            /* 0, or 1 + the tensor whose elements [.., k], 16 bits each, are the term */
  uint8_t tile_rows;       /* 0, or 1 + the axis of that tensor whose index is q, as no other one's depends on q */
  bool has_peak;           /* the term is computed without a load for each key, and not linear along a row */
};

/* A load of a real number in the score: what its element's gradient gets of a pair. */
struct variant_gradient {
  uint8_t tensor;
  bool along_q, along_k;          /* pairs of other queries, or keys, have another element */
  struct variant_program program; /* results: d score / d element, and the element's indices */
};

struct kjit_attention_variant {
  struct mem mem;
  atomic_uint references;
  struct variant_tree tree;
  variant_node_index score, mask; /* the mask is VARIANT_NONE where every key is seen */
  variant_node_index score_grad;  /* d score / d s; VARIANT_NONE where it has too many operations */
  struct variant_row_intervals intervals;
  struct variant_score_class class;
  struct {
    struct variant_program text; /* the score and the mask, as the canonical text has them */
    struct variant_program score, mask, score_grad, bounds;
    struct variant_program slope, term, inner, step; /* of a score that is affine, or so in its core */
    struct variant_program tile;                     /* the indices in front of k of the load that is the term */
  } programs;
  struct variant_gradient gradients[VARIANT_GRADIENTS_MAX];
  size_t gradient_count;
  bool has_gradients;         /* false: the score reads too much, or its derivatives have too many operations */
  struct variant_slots slots; /* literals, behind the declared scalars */
  size_t scalar_count, tensor_count;
  char *scalar_names[KJIT_VARIANT_SCALARS_MAX];
  char *tensor_names[KJIT_VARIANT_TENSORS_MAX];
  int32_t scalar_kinds[KJIT_VARIANT_SCALARS_MAX];  /* KJIT_VARIANT_INT32, KJIT_VARIANT_FP32 */
  int32_t tensor_dtypes[KJIT_VARIANT_TENSORS_MAX]; /* PyTorch's numbers */
  char *canonical;                                 /* the trees in the language, names by position */
  char *header;                                    /* VARIANT_HEADER_NAME */
  size_t header_bytes;
  struct digest digest; /* of the canonical text, types, dtypes and ranks */
};

/* The size of a problem, as expressions see it. */
struct variant_problem {
  int32_t seq_q, seq_kv, heads_q, heads_kv;
};

/* Fill what a kernel is given at a launch. `scalar_values` has scalar_count int32, floats by their bits; `tensors` has
 * tensor_count. Without checks of devices: variant_check_tensors() is for that. Costs about 100 ns. */
void variant_fill_arguments(const kjit_attention_variant *variant, const struct variant_problem *problem,
                            const int32_t *scalar_values, const kjit_tensor *tensors,
                            struct kjit_variant_arguments *out);

/* Are they tensors that the variant can read: dtype, rank, sizes of 1 to INT32_MAX, data, and this device?
 * KJIT_ERR_INVALID_ARG names the tensor and the rule. */
kjit_status variant_check_tensors(const kjit_attention_variant *variant, const int32_t *scalar_values,
                                  const kjit_tensor *tensors, int32_t device, kjit_error *error);

/* -- The host evaluator: tensors must be host memory -- */

struct variant_place {
  int32_t b, h, q, k;
};

/* In double precision. */
double variant_score_at(const kjit_attention_variant *variant, const struct kjit_variant_arguments *arguments,
                        double score, const struct variant_place *place);
/* d score / d s there. */
double variant_score_grad_at(const kjit_attention_variant *variant, const struct kjit_variant_arguments *arguments,
                             double score, const struct variant_place *place);
/* Is the key seen? As the kernels answer: by row intervals where the mask has them, else by the mask. */
bool variant_mask_at(const kjit_attention_variant *variant, const struct kjit_variant_arguments *arguments,
                     const struct variant_place *place);
/* Row interval `which` of row (b, h, q), cut to [0, seq_kv]. */
void variant_interval_at(const kjit_attention_variant *variant, const struct kjit_variant_arguments *arguments,
                         size_t which, const struct variant_place *row, int32_t *lo, int32_t *hi);

/* Rows [q0, q1) and keys [k0, k1), none of them empty. */
struct variant_block {
  int32_t b, h, q0, q1, k0, k1;
};

/* Is no key of the block seen by any row (0), every key by every row (2), or can it not be said (1)? Sound. */
int variant_block_at(const kjit_attention_variant *variant, const struct kjit_variant_arguments *arguments,
                     const struct variant_block *block);

/* The same question of the mask's tree alone, whatever intervals it has. For tests. */
bool variant_mask_tree_at(const kjit_attention_variant *variant, const struct kjit_variant_arguments *arguments,
                          const struct variant_place *place);

/* -- Variants that the library writes itself -- */

/* The plain members of the attention arguments. Only what is present, not its value, decides the kernel. */
struct variant_builtin_members {
  bool has_window_left, has_window_right; /* i + seq_kv - seq_q - left <= j <= i + seq_kv - seq_q + right */
  bool is_causal;                         /* aligned bottom right, together with the others */
  bool has_chunk;                         /* keys of the same multiple of attention_chunk */
  bool has_softcap;
  uint32_t alibi_rank; /* 0: none; 1: (heads); 2: (batch, heads) */
  int32_t alibi_dtype;
  bool alibi_is_behind; /* no key is seen beyond the query's own place, whatever the mask's other parts say */
  bool has_bias;        /* (batch, heads_q, seq_q, seq_kv), strides 0 where it is broadcast */
  int32_t bias_dtype;
};

/* The values, in the order of the scalars and tensors that the variant has. */
struct variant_builtin_values {
  int32_t window_left, window_right, chunk;
  float softcap;
  const kjit_tensor *alibi, *bias;
};

/* A variant that stays as long as the process; found again without a lock by what is present. *out is NULL when nothing
 * is. The softcap comes first, then the bias, then ALiBi, then the mask. */
kjit_status attention_variant_builtin(const kjit_attention_variant **out, const struct variant_builtin_members *members,
                                      kjit_error *error);

/* The scalars and tensors of such a variant: `scalars` takes 4, `tensors` 2. */
void attention_variant_builtin_values(const struct variant_builtin_members *members,
                                      const struct variant_builtin_values *values, int32_t *scalars,
                                      kjit_tensor *tensors);

#endif
