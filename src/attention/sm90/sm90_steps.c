/* What attention_sm90 was measured best with for each class of head sizes, and how a tile is fitted into shared memory.
 * docs/attention.md has the measurements.
 *
 * Pure; any thread. */
#include "attention/sm90/sm90_steps.h"

/* Heads of up to `columns` columns of V, and of more than the class before. */
struct head_class {
  int32_t columns;
  struct sm90_steps of[2]; /* full, causal */
};
enum { NEVER = INT32_MAX };
/* clang-format off */
static const struct head_class classes[] = {
    { 24, {{128, 112,    0}, {128, 112,  2048}}}, /* 128 with three spills */
    { 64, {{128, 128,    0}, {128, 128,  2048}}},
    { 72, {{128, 128,    0}, {128, 128,  2048}}},
    { 80, {{112, 112,    0}, {112,  96,  2048}}},
    { 96, {{112, 112,    0}, {160,  96,  2048}}},
    {112, {{128,  96, 2048}, {128,  96,  4096}}},
    {120, {{128,  80, 2048}, {128,  96,  8192}}},
    {128, {{128,  80, 2048}, {128,  80,  8192}}},
    {160, {{ 96,  64,    0}, { 80,  64, NEVER}}},
    {168, {{ 64,  64,    0}, { 64,   0, NEVER}}}, /* 176 columns of three spill */
    {256, {{ 64,   0, NEVER}, {64,   0, NEVER}}},
};
/* clang-format on */

const struct sm90_steps *sm90_steps_of(int64_t head_dim_v, bool is_triangle) {
  size_t i = 0;
  while (head_dim_v > classes[i].columns)
    i++;
  return &classes[i].of[is_triangle];
}

int32_t sm90_best_consumers(const kjit_attention_problem *problem, const struct sm90_steps *steps) {
  return problem->seq_q >= steps->rows_of_three ? 3 : 2;
}

int32_t sm90_shorten(int32_t tile_n, int64_t seq_kv) {
  return seq_kv <= SM90_FEW_KEYS && tile_n > SM90_FEW_KEYS ? SM90_FEW_KEYS : tile_n;
}

void sm90_set_consumers(kjit_attention_sm90_config *config, const struct sm90_steps *steps, int64_t seq_kv,
                        int32_t consumers) {
  config->consumers = consumers;
  config->tile_n = sm90_shorten(consumers == 3 ? steps->tile_n_of_three : steps->tile_n, seq_kv);
}

void sm90_fit_tile(kjit_attention_sm90_config *config, int32_t tile_n, int32_t q_buffers) {
  config->q_buffers = q_buffers;
  if (q_buffers == 2) config->o_chunks = 0;
  config->tile_n = tile_n;
  while (config->tile_n > SM90_KEY_STEP && !sm90_fits(config))
    config->tile_n -= SM90_KEY_STEP;
}

/* Take the largest tile with one Q buffer, and give O what is left of shared memory, up to all of O. */
static bool fit_beside_output(kjit_attention_sm90_config *config, int32_t tile_n) {
  sm90_fit_tile(config, tile_n, 1);
  config->o_chunks = sm90_chunks(config->head_dim_v);
  while (config->o_chunks > 0 && !sm90_fits(config))
    config->o_chunks--;
  return config->o_chunks > 0;
}

void sm90_choose_tile(kjit_attention_sm90_config *config) {
  const int32_t wanted = config->tile_n;
  sm90_fit_tile(config, wanted, config->split ? 1 : 2);
  if (config->split || config->tile_n == wanted) return;
  if (fit_beside_output(config, wanted) || fit_beside_output(config, config->tile_n - SM90_KEY_STEP)) return;
  sm90_fit_tile(config, wanted, 1);
}
