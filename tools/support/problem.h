/* An attention problem to check or to time: shape, type, layout in memory and scale. */
#ifndef KJIT_TOOLS_SUPPORT_PROBLEM_H
#define KJIT_TOOLS_SUPPORT_PROBLEM_H

#include <stdbool.h>

#include <kjit/attention.h>

/* X(name, word, text) */
#define PROBLEM_LAYOUTS(X)                                                                                             \
  X(BSHD, "bshd", "(batch, seq, heads, head_dim) contiguous")                                                          \
  X(BHSD, "bhsd", "(batch, heads, seq, head_dim) contiguous")                                                          \
  X(PADDED, "padded", "bshd with a gap behind each sequence position and each batch entry")                            \
  X(PACKED, "packed", "the heads of q, k and v side by side in each position; needs seq_q = seq_kv; o is bshd")        \
  X(SHARED_KV, "shared_kv", "one k and one v seen by all batch entries and heads: their strides are 0")

enum problem_layout {
#define PROBLEM_LAYOUT_ENUM(name, word, text) LAYOUT_##name,
  PROBLEM_LAYOUTS(PROBLEM_LAYOUT_ENUM)
#undef PROBLEM_LAYOUT_ENUM
      LAYOUT_COUNT
};

/* Which call of the problem is meant. */
enum problem_pass { PASS_FORWARD, PASS_BACKWARD };

/* A problem of the library with what a trial of it needs besides. Whatever the library learns to compute is a member of
 * `asked`, so that tools and tests never have a second description of it. */
struct trial_problem {
  kjit_attention_problem asked; /* its batch, heads_q, seq_q and seq_kv are given, never 0 */
  double scale;                 /* of the softmax; 0: 1/sqrt(head_dim)                     */
  uint64_t seed;                /* of the inputs                                           */
  enum problem_layout layout;
  enum problem_pass pass;
  bool lse; /* ask for the log-sum-exp too */
};

/* The `asked` of an initialiser: PROBLEM_OF(.dtype = KJIT_FP16, .batch = 1, ...). */
#define PROBLEM_OF(...)                                                                                                \
  { .struct_size = sizeof(kjit_attention_problem), __VA_ARGS__ }

#define PROBLEM_TEXT_MAX 256

/* Print the problem as "fp16 B16 H16 Sq2048 Skv2048 D128 bshd scale=default seed=0x…", from which it can be made again.
 */
void problem_print(const struct trial_problem *problem, char text[PROBLEM_TEXT_MAX]);

/* Read "B,S,H,D" or "B,S,H,D,SKV" into the five sizes. KJIT_ERR_PARSE names the part that is wrong. */
kjit_status problem_parse_shape(const char *text, struct trial_problem *problem, kjit_error *error);

/* Read "fp16" or "bf16"; read the word of a layout. KJIT_ERR_PARSE lists the words. */
kjit_status problem_parse_dtype(const char *text, struct trial_problem *problem, kjit_error *error);
kjit_status problem_parse_layout(const char *text, struct trial_problem *problem, kjit_error *error);
const char *problem_layout_word(enum problem_layout layout);

/* Sizes that the checking kernels can take: each at least 1, fewer than 2^32 elements of output, and so on. */
kjit_status problem_check(const struct trial_problem *problem, kjit_error *error);

/* The mask: is it causal, aligned bottom right? */
bool problem_is_causal(const struct trial_problem *problem);
void problem_set_causal(struct trial_problem *problem, bool causal);

/* The number of key heads, and the head size of V, with 0 replaced by its default. */
int64_t problem_heads_kv(const struct trial_problem *problem);
int64_t problem_head_dim_v(const struct trial_problem *problem);

/* 2 * batch * heads * seq_q * (keys that a row sees on average) * (head_dim + head_dim_v): the two products. */
double problem_flops(const struct trial_problem *problem);

/* The softmax scale: the problem's own, or 1/sqrt(head_dim). */
double problem_scale(const struct trial_problem *problem);

/* How far a correct fp32 log-sum-exp may be from the exact one: problem.c derives it. */
double problem_lse_bound(const struct trial_problem *problem);

enum problem_tensor { TENSOR_Q, TENSOR_K, TENSOR_V, TENSOR_O, TENSOR_COUNT };

/* Where a tensor of the layout lies in its allocation, in elements. */
struct tensor_place {
  enum problem_tensor owner; /* whose allocation it lies in: itself, or TENSOR_Q when packed */
  int64_t first;             /* of element (0, 0, 0, 0) */
  int64_t span;              /* elements of the owner's whole allocation */
  int64_t shape[4];          /* batch, seq, heads, head_dim */
  int64_t stride[4];
};
struct tensor_place problem_place(const struct trial_problem *problem, enum problem_tensor tensor);

#endif
