/* How a config that the planner chose for dense attention is changed to suit a variant: consumers, keys of a step and
 * shared memory, by what the variant's functions need. docs/lab-notes/variants.md has the measurements.
 *
 * Pure; any thread. */
#include "attention/sm90/sm90_choose.h"
#include "attention/sm90/sm90_steps.h"
#include "base/integer.h"

enum { MOST_V = 160 }; /* columns of V of three consumers, because a variant takes registers too */

/* Boxes of terms need no padding, so that a second tile of Q may have room beside them up to 128 columns: then it takes
 * that of O's own. A step has whole boxes, of which two are best where they fit, whatever step suits dense attention of
 * so many columns. */
static void use_boxes(const kjit_attention_problem *problem, kjit_attention_sm90_config *config) {
  enum { MOST_BOXES = 2 };
  kjit_attention_sm90_config boxed = *config;
  boxed.q_buffers = problem->head_dim_v <= 128 ? 2 : 1;
  boxed.o_chunks = 0;
  for (int32_t boxes = problem->seq_kv <= SM90_FEW_KEYS ? 1 : MOST_BOXES; boxes > 0; boxes--) {
    boxed.tile_n = boxes * SM90_CHUNK_COLUMNS;
    if (!sm90_fits(&boxed) || sm90_term_slots(&boxed) == 0) continue;
    *config = boxed;
    return;
  }
}

/* A tensor's terms that are staged in shared memory by the consumers' own copies take the room of a second tile of Q
 * beyond 64 columns, and that of O's own beyond 128. Terms in registers leave fewer for a step's scores: heads of up to
 * 64 columns then take three consumers and 80 keys, up to 128 two and 112. */
static void suit_tensor(const kjit_attention_problem *problem, const struct sm90_steps *steps,
                        const struct sm90_variant_needs *needs, kjit_attention_sm90_config *config) {
  enum { KEYS_OF_THREE = 80, KEYS_OF_TWO = 112 };
  const bool is_small = problem->head_dim_v <= 64;
  if (needs->is_staged) {
    sm90_set_consumers(config, steps, problem->seq_kv, (int32_t)integer_min(config->consumers, 2));
    config->stages = 2;
    config->q_buffers = is_small ? 2 : 1;
    config->o_chunks = !is_small && problem->head_dim_v <= 128 ? 1 : 0;
    while (config->tile_n > SM90_KEY_STEP && !(sm90_fits(config) && sm90_stages_terms(config)))
      config->tile_n -= SM90_KEY_STEP;
    if (needs->is_boxed) use_boxes(problem, config);
    return;
  }
  if (problem->head_dim_v > 128) return;
  config->consumers = is_small ? config->consumers : (int32_t)integer_min(config->consumers, 2);
  sm90_fit_tile(config, (int32_t)integer_min(config->tile_n, config->consumers == 3 ? KEYS_OF_THREE : KEYS_OF_TWO),
                config->q_buffers);
}

/* Elements that are loaded one by one, for each pair, take registers for addresses besides: three consumers and 128
 * keys spill 2,300 bytes of heads of 64 columns with one element a pair, 6,800 with two (docs/lab-notes/variants.md).
 * Above 128 columns a step has few keys anyhow. */
static void suit_gathered(const kjit_attention_problem *problem, const struct sm90_steps *steps, int gathered,
                          kjit_attention_sm90_config *config) {
  enum { KEYS_OF_ONE = 112, KEYS_OF_MANY = 80 };
  if (problem->head_dim_v > 128) return;
  if (config->consumers > 2) {
    sm90_set_consumers(config, steps, problem->seq_kv, 2);
    sm90_choose_tile(config);
  }
  if (gathered > 1)
    sm90_fit_tile(config, (int32_t)integer_min(config->tile_n, KEYS_OF_MANY), config->q_buffers);
  else if (problem->head_dim_v <= 64)
    sm90_fit_tile(config, (int32_t)integer_min(config->tile_n, KEYS_OF_ONE), config->q_buffers);
}

/* Two consumers' tiles have less to begin and to end, which is much of a tile with few key blocks; three suit a score
 * function that takes the exponent unit twice, because then products and exponents of three alternate. Of lists that
 * follow from a mask alone three read fewer keys a query up to 64 columns, which pays where tiles are long; a caller's
 * blocks of 128 queries are visited by whole tiles of two. Two pairs of consumers are sm90_pairs.c's. Splits and packed
 * heads stay as they are. */
void sm90_suit_variant(const kjit_attention_problem *problem, const struct sm90_variant_needs *needs,
                       kjit_attention_sm90_config *config) {
  const struct sm90_steps *steps = sm90_steps_of(problem->head_dim_v, config->causal);
  const bool has_three =
      sm90_steps_of(problem->head_dim_v, false)->rows_of_three <= problem->seq_q && problem->seq_kv > SM90_FEW_KEYS;
  const bool has_two_steps =
      config->o_chunks > 0 && config->tile_n % SM90_FEW_KEYS; /* sm90_output.c: because of its O */
  if (config->q_buffers == 2) config->o_chunks = 0; /* windows of 64 columns lost 4 % by it, documents gained 5 */
  if (config->q_buffers == 2 && has_two_steps) {
    const int64_t groups = integer_divide_up(problem->seq_q, SM90_GROUP_ROWS);
    const int64_t best = integer_min(sm90_best_consumers(problem, steps), groups);
    sm90_set_consumers(config, steps, problem->seq_kv, (int32_t)best);
    sm90_choose_tile(config);
  }
  if (config->split || config->packed > 1 || sm90_take_pairs_of_variant(problem, needs, config)) return;
  int32_t consumers = config->consumers;
  const bool has_long_lists = problem->head_dim_v <= 64 && problem->seq_kv >= SM90_LONG_LISTS;
  const bool is_narrow = needs->is_narrow || (needs->is_listed && !has_long_lists);
  if (is_narrow || problem->head_dim_v > MOST_V)
    consumers = (int32_t)integer_min(consumers, 2);
  else if (needs->is_curved && consumers == 2 && has_three)
    consumers = 3;
  if (consumers != config->consumers) {
    sm90_set_consumers(config, steps, problem->seq_kv, consumers);
    sm90_choose_tile(config);
  }
  if (needs->is_tiled) suit_tensor(problem, steps, needs, config);
  if (needs->gathered) suit_gathered(problem, steps, needs->gathered, config);
  *config = sm90_canonical(config);
}
