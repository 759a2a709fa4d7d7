/* A problem that the tests of several planners share. Pure; any thread. */
#ifndef KJIT_TESTS_UNIT_ATTENTION_ATTENTION_PROBLEM_H
#define KJIT_TESTS_UNIT_ATTENTION_ATTENTION_PROBLEM_H

#include <kjit/attention.h>

/* A problem of bf16 with as many columns of V as of K, not causal. */
static inline kjit_attention_problem problem_of(int64_t batch, int64_t heads_q, int64_t heads_kv, int64_t seq_q,
                                                int64_t seq_kv, int64_t head_dim) {
  kjit_attention_problem problem = kjit_attention_problem_default();
  problem.dtype = KJIT_BF16;
  problem.batch = batch;
  problem.heads_q = heads_q;
  problem.heads_kv = heads_kv;
  problem.seq_q = seq_q;
  problem.seq_kv = seq_kv;
  problem.head_dim = problem.head_dim_v = head_dim;
  return problem;
}

#endif
