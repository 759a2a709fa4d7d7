#include "case_generator.h"
#include "support/configs.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

void generator_flags(kjit_flash_config *config, size_t row) {
  config->async_copy = row != 1;
  config->eager_load_blocks = row != 2;
  config->swizzled = row != 3;
  config->Q_mma_load_K_tiles = row == 4 || row == 5 ? 0 : 2;
  config->K_mma_load_K_tiles = row == 5 ? 0 : 2;
  config->V_mma_load_K_tiles = row == 5 || row == 6 ? 0 : 2;
  config->mma_double_buffer_loads = row != 7 && row != 9;
  config->optimized_softmax = row != 8 && row != 9;
}

static bool is_legal(const kjit_flash_config *config, const char *arch) {
  return plain_check(config, arch, NULL) == KJIT_OK;
}

kjit_flash_config generator_rotate(int32_t dtype, int64_t head_dim, size_t turn, const char *arch) {
  static const struct {
    int32_t B_r, B_c, n_warps;
  } shapes[] = {{64, 64, 4}, {128, 32, 4}, {16, 16, 1}, {128, 64, 8}, {64, 32, 4}, {32, 48, 2}, {128, 64, 4}};
  const size_t shape_count = sizeof shapes / sizeof *shapes; /* shares no factor with the rows: all pairs come up */
  for (size_t tries = 0; tries < shape_count * GENERATOR_FLAG_ROWS; tries++, turn++) {
    const size_t shape = turn % shape_count;
    kjit_flash_config config = {.dtype = dtype,
                                .d_head = (int32_t)head_dim,
                                .B_r = shapes[shape].B_r,
                                .B_c = shapes[shape].B_c,
                                .n_warps = shapes[shape].n_warps};
    generator_flags(&config, turn % GENERATOR_FLAG_ROWS);
    if (is_legal(&config, arch)) return config;
  }
  fprintf(stderr, "no legal config for head size %lld on %s\n", (long long)head_dim, arch);
  abort();
}

static int32_t pick(struct random *random, const int32_t *values, size_t count) {
  return values[random_below(random, count)];
}

kjit_flash_config generator_random_config(struct random *random, const char *arch) {
  static const int32_t warps[] = {1, 2, 4, 8}, counts[] = {0, 2, 4, 8};
  kjit_flash_config config = {0};
  do {
    config.dtype = random_below(random, 2) ? KJIT_BF16 : KJIT_FP16;
    config.d_head = 16 * (2 + (int32_t)random_below(random, 15));
    config.n_warps = pick(random, warps, 4);
    config.B_r = 16 * config.n_warps * (1 + (int32_t)random_below(random, 4));
    config.B_c = 16 * (1 + (int32_t)random_below(random, 16));
    config.async_copy = (int32_t)random_below(random, 2);
    config.eager_load_blocks = (int32_t)random_below(random, 2);
    config.swizzled = (int32_t)random_below(random, 2);
    config.Q_mma_load_K_tiles = pick(random, counts, 4);
    config.K_mma_load_K_tiles = pick(random, counts, 4);
    config.V_mma_load_K_tiles = pick(random, counts, 4);
    config.mma_double_buffer_loads = (int32_t)random_below(random, 2);
    config.optimized_softmax = (int32_t)random_below(random, 2);
  } while (!is_legal(&config, arch));
  return config;
}

/* From 1 to 2^10 or so, small ones as often as large ones, and mostly no round numbers. */
static int64_t random_length(struct random *random) {
  return 1 + (int64_t)random_below(random, (size_t)1 << (1 + random_below(random, 10)));
}

struct trial_problem generator_random_problem(struct random *random, const kjit_flash_config *config) {
  struct trial_problem problem = {
      .asked = PROBLEM_OF(.dtype = config->dtype, .batch = 1 + (int64_t)random_below(random, 3),
                          .heads_q = 1 + (int64_t)random_below(random, 5), .seq_q = random_length(random),
                          .seq_kv = random_length(random), .head_dim = config->d_head),
      .layout = (enum problem_layout)random_below(random, LAYOUT_COUNT),
      .lse = random_below(random, 2) != 0,
      .seed = random_next(random)};
  if (problem.layout == LAYOUT_PACKED) problem.asked.seq_kv = problem.asked.seq_q;
  const double factors[] = {0, 0, 0.3, 1.7};
  problem.scale = (double)(float)(factors[random_below(random, 4)] / sqrt((double)config->d_head));
  return problem;
}

/* A multiple of 8 up to `most`, half of the time `most` itself. */
static int64_t random_head(struct random *random, int64_t most) {
  return random_below(random, 2) ? most : 8 * (1 + (int64_t)random_below(random, (size_t)most / 8));
}

/* One of the head sizes is what the config's d_head stands for, or 8 less; the other is anything up to it. */
static void random_heads(struct random *random, const kjit_flash_config *config, struct trial_problem *problem) {
  const int64_t larger = config->d_head - (config->d_head > 32 && random_below(random, 2) ? 8 : 0);
  const int64_t other = random_head(random, larger);
  const bool wide_v = random_below(random, 2) != 0;
  problem->asked.head_dim = wide_v ? other : larger;
  problem->asked.head_dim_v = wide_v ? larger : other;
}

static bool fits(const struct gpu_case *made, const char *arch) {
  kjit_config kernel;
  return kjit_config_of_flash(&made->config, &made->problem.asked, &kernel, NULL) == KJIT_OK &&
         kjit_config_check(&kernel, arch, NULL) == KJIT_OK;
}

static struct gpu_case draw_traits(struct random *random, const char *arch) {
  struct gpu_case made = {.config = generator_random_config(random, arch)};
  made.problem = generator_random_problem(random, &made.config);
  struct trial_problem *problem = &made.problem;
  problem_set_causal(problem, random_below(random, 4) > 0);
  problem->asked.heads_kv = 1 + (int64_t)random_below(random, 3);
  problem->asked.heads_q = problem->asked.heads_kv * (1 + (int64_t)random_below(random, 4));
  random_heads(random, &made.config, problem);
  if (problem->layout == LAYOUT_PACKED) problem->layout = LAYOUT_PADDED; /* needs heads of one number and size */
  return made;
}

struct gpu_case generator_random_traits(struct random *random, const char *arch) {
  struct gpu_case made;
  do {
    made = draw_traits(random, arch);
  } while (!fits(&made, arch));
  return made;
}
