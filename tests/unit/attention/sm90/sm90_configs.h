/* Configs of attention_sm90 for the tests of this folder. */
#ifndef KJIT_TESTS_UNIT_ATTENTION_SM90_CONFIGS_H
#define KJIT_TESTS_UNIT_ATTENTION_SM90_CONFIGS_H

#include <kjit/attention_sm90.h>

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

#endif
