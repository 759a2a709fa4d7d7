/* Configs of attention_sm90 for the tests of this folder. */
#ifndef KJIT_TESTS_UNIT_ATTENTION_SM90_CONFIGS_H
#define KJIT_TESTS_UNIT_ATTENTION_SM90_CONFIGS_H

#include <kjit/attention_sm90.h>

#include "attention/attention_arguments.h"
#include "attention/sm90/sm90_choose.h"
#include "attention/sm90/sm90_config.h"
#include "base/error.h"
#include "family/config.h"
#include "support/configs.h"
#include "support/test.h"
#include "support/usual_card.h"

/* The config that single changes are made to. */
static inline kjit_attention_sm90_config sm90_base(void) {
  kjit_attention_sm90_config config = {.dtype = KJIT_BF16,
                                       .head_dim = 128,
                                       .head_dim_v = 128,
                                       .causal = 0,
                                       .consumers = 2,
                                       .tile_n = 128,
                                       .stages = 2,
                                       .q_buffers = 2,
                                       .o_chunks = 0,
                                       .ping_pong = 1,
                                       .rescale_slack = 0,
                                       .packed = 1,
                                       .split = 0};
  return config;
}

static inline kjit_status sm90_config_check(const kjit_attention_sm90_config *sm90, const char *arch,
                                            kjit_error *error) {
  const kjit_config config = sm90_config(sm90);
  return kjit_config_check(&config, arch, error);
}

/* By the planner's rules, on a card with so many SMs; 0: those of an H200. */
static inline kjit_status sm90_config_choose(const kjit_attention_problem *problem, uint32_t sm_count,
                                             kjit_attention_sm90_config *out, kjit_error *error) {
  kjit_attention_problem taken;
  *out = (kjit_attention_sm90_config){0};
  error_clear(error);
  const kjit_status status = attention_problem_take(&taken, problem, error);
  return status == KJIT_OK ? usual_sm90_choose(&taken, sm_count ? sm_count : FAMILY_USUAL_SM_COUNT, out, error)
                           : status;
}

/* Self-attention of 16 batch entries and 16 heads, in bf16. */
static inline kjit_attention_problem sm90_problem(int64_t seq, int64_t head_dim, uint32_t flags) {
  kjit_attention_problem problem = kjit_attention_problem_default();
  problem.dtype = KJIT_BF16;
  problem.flags = flags;
  problem.batch = problem.heads_q = problem.heads_kv = 16;
  problem.seq_q = problem.seq_kv = seq;
  problem.head_dim = problem.head_dim_v = head_dim;
  return problem;
}

/* The problem with another batch, other heads and another number of queries. */
static inline kjit_attention_problem sm90_sized(kjit_attention_problem problem, int64_t batch, int64_t heads_q,
                                                int64_t heads_kv, int64_t seq_q) {
  problem.batch = batch;
  problem.heads_q = heads_q;
  problem.heads_kv = heads_kv;
  problem.seq_q = seq_q;
  return problem;
}

/* As sm90_config_choose(), of a problem that has a config. */
static inline kjit_attention_sm90_config sm90_chosen(const kjit_attention_problem *problem, uint32_t sm_count) {
  kjit_attention_sm90_config config;
  kjit_error error;
  assert_status(KJIT_OK, sm90_config_choose(problem, sm_count, &config, &error), &error);
  return config;
}

#endif
