/* An attention problem as text: "dtype=bf16,head_dim=128,seq_q=4096". Read on the command line and in manifests. */
#ifndef KJIT_TOOLS_ATTENTION_SPEC_H
#define KJIT_TOOLS_ATTENTION_SPEC_H

#include <kjit/kjit.h>

enum attention_layout { SPEC_BSHD, SPEC_BHSD };

/* Every key is a member of the same name. */
struct attention_spec {
  int64_t dtype;      /* a kjit_dtype; required           */
  int64_t head_dim;   /* required                         */
  int64_t head_dim_v; /* default: head_dim                */
  int64_t batch;      /* default: 1                       */
  int64_t heads_q;    /* default: 1                       */
  int64_t heads_kv;   /* default: heads_q                 */
  int64_t seq_q;      /* default: 4096                    */
  int64_t seq_kv;     /* default: seq_q                   */
  int64_t causal;     /* 0 or 1; default: 0               */
  int64_t layout;     /* an enum attention_layout; default: bshd */
  int64_t lse;        /* 0 or 1; default: 0               */
  double scale;       /* > 0; default: 0 for 1/sqrt(head_dim) */
};

/* For usage texts: every key with its values. */
#define ATTENTION_SPEC_HELP                                                                                            \
  "  dtype=fp16|bf16        element type (required)\n"                                                                 \
  "  head_dim=N             head size of q and k (required)\n"                                                         \
  "  head_dim_v=N           head size of v and o; head_dim\n"                                                          \
  "  batch=N                1\n"                                                                                       \
  "  heads_q=N              1\n"                                                                                       \
  "  heads_kv=N             heads_q\n"                                                                                 \
  "  seq_q=N                4096\n"                                                                                    \
  "  seq_kv=N               seq_q\n"                                                                                   \
  "  causal=0|1             0\n"                                                                                       \
  "  scale=X                softmax scale; 1/sqrt(head_dim)\n"                                                         \
  "  layout=bshd|bhsd       bshd\n"                                                                                    \
  "  lse=0|1                log-sum-exp wanted; 0\n"

/* Blanks in front are allowed, elsewhere none. KJIT_ERR_PARSE names the column (from 1), the key or value, and what is
 * expected there. */
kjit_status attention_spec_parse(const char *text, struct attention_spec *out, kjit_error *error);

/* The problem in the form by which the library chooses a kernel. */
kjit_attention_problem attention_spec_problem(const struct attention_spec *spec);

#endif
