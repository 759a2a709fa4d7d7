/* Configs for the tests of this folder: one plain, and legal ones at random. */
#ifndef KJIT_TESTS_UNIT_ATTENTION_CONFIGS_H
#define KJIT_TESTS_UNIT_ATTENTION_CONFIGS_H

#include <kjit/flash_forward.h>

#include "support/configs.h"

/* The best config of the original project at (64, 64), to which single changes are made. */
static inline kjit_flash_config config_base(void) {
  kjit_flash_config config = {.dtype = KJIT_FP16,
                              .d_head = 128,
                              .B_r = 64,
                              .B_c = 64,
                              .n_warps = 4,
                              .async_copy = 1,
                              .eager_load_blocks = 1,
                              .swizzled = 1,
                              .Q_mma_load_K_tiles = 2,
                              .K_mma_load_K_tiles = 2,
                              .V_mma_load_K_tiles = 2,
                              .mma_double_buffer_loads = 0,
                              .optimized_softmax = 1};
  return config;
}

/* xorshift64: the same sequence on every machine. */
static inline uint32_t random_below(uint64_t *seed, uint32_t bound) {
  *seed ^= *seed << 13;
  *seed ^= *seed >> 7;
  *seed ^= *seed << 17;
  return (uint32_t)(*seed >> 32) % bound;
}

/* 0, or a power of two from 2 to 32. */
static inline int32_t random_load(uint64_t *seed) {
  const uint32_t shift = random_below(seed, 6);
  return shift ? (int32_t)(1u << shift) : 0;
}

static inline kjit_flash_config random_config(uint64_t *seed) {
  kjit_flash_config config = {0};
  config.dtype = random_below(seed, 2) ? KJIT_BF16 : KJIT_FP16;
  config.d_head = 32 + 16 * (int32_t)random_below(seed, 15);
  config.n_warps = 1 << random_below(seed, 4);
  config.B_r = 16 * config.n_warps * (1 + (int32_t)random_below(seed, 4));
  config.B_c = 16 + 16 * (int32_t)random_below(seed, 16);
  config.async_copy = (int32_t)random_below(seed, 2);
  config.eager_load_blocks = (int32_t)random_below(seed, 2);
  config.swizzled = (int32_t)random_below(seed, 2);
  config.K_mma_load_K_tiles = random_load(seed);
  config.Q_mma_load_K_tiles = random_below(seed, 2) ? config.K_mma_load_K_tiles : 0;
  config.V_mma_load_K_tiles = random_load(seed);
  config.mma_double_buffer_loads = (int32_t)random_below(seed, 2);
  config.optimized_softmax = (int32_t)random_below(seed, 2);
  return config;
}

static inline kjit_flash_config random_legal_config(uint64_t *seed) {
  kjit_flash_config config;
  do {
    config = random_config(seed);
  } while (plain_check(&config, NULL, NULL) != KJIT_OK);
  return config;
}

#endif
