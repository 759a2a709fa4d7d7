/* An attention problem as text: "dtype=bf16,head_dim=128,seq_q=4096". Read on the command line and in manifests. */
#ifndef KJIT_TOOLS_ATTENTION_TEXT_H
#define KJIT_TOOLS_ATTENTION_TEXT_H

#include <kjit/kjit.h>

#include "support/problem.h"

/* For usage texts: every key with its values. */
#define ATTENTION_TEXT_HELP                                                                                            \
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
  "  lse=0|1                log-sum-exp wanted; 0\n"                                                                   \
  "  pass=forward|backward  backward: the kernels of dq, dk and dv, in a manifest; forward\n"

/* Blanks in front are allowed, elsewhere none. KJIT_ERR_PARSE names the column (from 1), the key or value, and what is
 * expected there. */
kjit_status attention_text_parse(const char *text, struct trial_problem *out, kjit_error *error);

#endif
