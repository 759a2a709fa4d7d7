/* One problem of serving attention, from lengths to a verdict: inputs on the host and on the card, everything that no
 * kernel may read filled with NaN or impossible page numbers, a reference in float64 and one in 16 bits computed on the
 * host, and the comparison. Small problems only: the references are plain loops. */
#ifndef KJIT_TESTS_GPU_SERVING_TRIAL_H
#define KJIT_TESTS_GPU_SERVING_TRIAL_H

#include <stdbool.h>

#include <kjit/kjit.h>

#include "support/card.h"
#include "support/random.h"

#define SERVING_BATCH_MAX 64

enum serving_cache { SERVING_DENSE, SERVING_RAGGED, SERVING_PAGED };
enum serving_layout { SERVING_NHD, SERVING_HND, SERVING_KV_TOGETHER };

struct serving_case {
  int32_t dtype;
  int batch, heads_kv, group, head_dim, head_dim_v;
  enum serving_cache cache;
  enum serving_layout layout;
  int page_size;
  bool narrow; /* the cache is e4m3, with a number for each sequence and head */
  bool ragged_q, ragged_new;
  bool begins_below_0; /* cu_seqlens: the first sequence, which has no rows and no keys, would have some in front of
                          all; leftpad: a number below 0 in place of each 0 */
  int rows[SERVING_BATCH_MAX];    /* of q; where they differ, ragged_q or seqused_q tells them */
  int keys[SERVING_BATCH_MAX];    /* in the cache, the padding on the left included; may be -1 with append */
  int added[SERVING_BATCH_MAX];   /* appended; all equal unless ragged_new */
  int leftpad[SERVING_BATCH_MAX]; /* slots without a key */
  bool append, use_seqused_q, use_cache_index, use_leftpad;
  int rotary_columns; /* 0: none */
  bool interleaved, use_rotary_seqlens, causal, lse;
  int window_left, window_right, chunk;
  float softcap, scale;
  float query_size; /* numbers of q are multiplied by it; 0: 1 */
  int query_step;   /* those of every n-th row of a sequence alone; 0: of all */
  int sinks;        /* 0: none; KJIT_FP32; or the dtype */
  int num_splits, sm_margin;
  int max_rows; /* max_seqlen_q, even if too small; 0: as many as there are */
  bool schedule, workspace;
  uint64_t seed;
};

/* A case of one dense sequence of everything plain, to be changed. */
struct serving_case serving_plain_case(void);

/* A case by chance, with lengths up to `most`. */
struct serving_case serving_random_case(struct random *random, int most);

/* Give a case so many sequences. */
void serving_set_lengths(struct serving_case *c, int batch, const int *rows, const int *keys);

enum { SERVING_MIXED_CASES = 8, SERVING_PADDED_CASES = 2, SERVING_NARROW_CASES = 12, SERVING_WIDE_NARROW_CASES = 9 };

/* Sequences with few rows among others with many: on Hopper one launch, which divides the keys of the first. */
void serving_mixed_cases(struct serving_case cases[SERVING_MIXED_CASES]);

/* Sequences with many rows on a cache of e4m3, some with few rows among them. */
void serving_narrow_cases(struct serving_case cases[SERVING_NARROW_CASES]);

/* The same cache with heads of more than 128 columns, behind padding on the left: attention_serving's on every card. */
void serving_wide_narrow_cases(struct serving_case cases[SERVING_WIDE_NARROW_CASES]);

/* As engines pad a batch: most sequences have no row, and rows behind the last belong to none. */
void serving_padded_cases(struct serving_case cases[SERVING_PADDED_CASES]);

/* Host and device memory of a problem. */
struct serving_memory {
  uint16_t *host;
  struct card_buffer card;
  size_t elements; /* of 2 bytes */
};

enum {
  SERVING_Q,
  SERVING_CACHE, /* keys, and values behind or between them */
  SERVING_O,
  SERVING_LSE,
  SERVING_K_NEW,
  SERVING_V_NEW,
  SERVING_TABLES, /* all int32 arrays */
  SERVING_COS,
  SERVING_SIN,
  SERVING_SINKS,
  SERVING_DESCALES, /* fp32: of keys, one for each sequence and head; of values, one for each head */
  SERVING_SCHEDULE,
  SERVING_WORKSPACE,
  SERVING_MEMORIES
};

struct serving_trial {
  struct serving_case c;
  const struct card *card;
  kjit_runtime *runtime;
  struct serving_memory memory[SERVING_MEMORIES];
  kjit_attention_serving_args args;
  double *k, *v; /* logical keys and values [sequence][key][head][column], appended ones included */
  size_t k_first[SERVING_BATCH_MAX + 1];
  int row_first[SERVING_BATCH_MAX + 1]; /* first row of q */
  int q_rows;                           /* rows of a sequence in memory, where q is not ragged */
  int total_rows;
  size_t v_base;           /* of element (0, 0, 0, 0) of v in the cache, elements */
  int positions, outer;    /* of the cache */
  int64_t cache_stride[3]; /* outer, position, head */
  int pages_first[SERVING_BATCH_MAX];
  int table_rows, max_pages;
};

#define SERVING_TEXT_MAX 1024

/* Make the problem's memory. */
kjit_status serving_trial_create(struct serving_trial *trial, kjit_runtime *runtime, const struct card *card,
                                 const struct serving_case *c, kjit_error *error);
void serving_trial_destroy(struct serving_trial *trial);

/* Bring cache and outputs to where they were before the first run. */
kjit_status serving_trial_reset(struct serving_trial *trial, kjit_error *error);

/* Enqueue: the schedule if the case has one, then attention. */
kjit_status serving_trial_enqueue(struct serving_trial *trial, CUstream stream, kjit_error *error);

/* Compare what lies in the outputs and in the cache with the reference. True when all is right; `text` says what is
 * wrong, and how large the error is. */
bool serving_trial_judge(struct serving_trial *trial, char text[SERVING_TEXT_MAX], kjit_error *error);

/* A digest of o and lse as they lie on the card. */
uint64_t serving_trial_digest(struct serving_trial *trial, kjit_error *error);

/* The case in one line. */
void serving_case_print(const struct serving_case *c, char text[SERVING_TEXT_MAX]);

#endif
