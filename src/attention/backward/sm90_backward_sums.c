/* attention_backward_sm90's planner for the three kernels that compute all gradients by five products a pair of tiles:
 * delta and zeros (pass 8), dk and dv while dq is summed in global memory (pass 7), dq from the sums (pass 16). Which
 * problems they get is a table of measured lengths; docs/backward.md has the measurements. Pure; any thread. */
#include <string.h>

#include "attention/backward/backward_call.h"
#include "attention/backward/sm90_backward.h"
#include "attention_backward_sm90/layout.h"
#include "base/integer.h"
#include "family/config.h"

/* Queries and keys from which on these kernels are faster than those that sum in registers, by the larger head size and
 * by mask (full, causal); NEVER where no card has shown it. `in_order`: where blocks take turns. `staggered`: from
 * where on the two consumers of a block are half a step apart. */
#define NEVER INT64_MAX
static const struct {
  int32_t columns;
  int64_t in_any_order[2], in_order[2], staggered;
} faster_from[] = {{64, {512, 512}, {16384, 1024}, 2048},
                   {128, {512, 2048}, {NEVER, NEVER}, NEVER},
                   {256, {NEVER, NEVER}, {NEVER, NEVER}, NEVER}};

/* The most memory for sums that the planner asks for: 4 bytes for each element of dq. */
#define MOST_BYTES ((int64_t)1 << 30)

/* The row of a problem. Its head sizes are those that a kernel takes. */
static size_t row_of(const kjit_attention_problem *problem) {
  const int64_t columns = problem->head_dim > problem->head_dim_v ? problem->head_dim : problem->head_dim_v;
  size_t row = 0;
  while (columns > faster_from[row].columns && row + 1 < sizeof faster_from / sizeof *faster_from)
    row++;
  return row;
}

/* Grouped heads: with fewer blocks than a card has multiprocessors it is the block that takes longest, and that is done
 * sooner when dq has blocks of its own, one for each query head. */
#define LEAST_BLOCKS 132

static int64_t blocks_of(const kjit_attention_problem *problem) {
  return integer_divide_up(problem->seq_kv, 2 * BACKWARD_SM90_GROUP_ROWS) * problem->heads_kv * problem->batch;
}

static bool is_faster(const kjit_attention_problem *problem) {
  const size_t row = row_of(problem), causal = problem->flags & KJIT_ATTENTION_CAUSAL ? 1 : 0;
  const bool in_order = problem->flags & KJIT_ATTENTION_DETERMINISTIC;
  const int64_t length = problem->seq_q < problem->seq_kv ? problem->seq_q : problem->seq_kv;
  if (problem->heads_q != problem->heads_kv && blocks_of(problem) < LEAST_BLOCKS) return false;
  return length >= (in_order ? faster_from[row].in_order : faster_from[row].in_any_order)[causal];
}

bool sm90_backward_choose_sums(const kjit_attention_problem *problem, uint32_t gradients,
                               const struct family_place *place, struct backward_choice *out) {
  static const int32_t passes[] = {BACKWARD_SM90_BEGIN, BACKWARD_SM90_SUM, BACKWARD_SM90_END};
  const bool narrow = problem->head_dim <= 64, wide = problem->head_dim > 128;
  const int64_t columns = narrow ? problem->head_dim : wide ? 256 : 128; /* of the sums */
  const bool all = gradients == (KJIT_GRADIENT_Q | KJIT_GRADIENT_K | KJIT_GRADIENT_V);
  if (!all || !is_faster(problem) || problem->head_dim % 8 || problem->head_dim_v % 8) return false;
  if (problem->batch * problem->heads_q * problem->seq_q * columns * 4 > MOST_BYTES) return false;
  kjit_attention_backward_sm90_config config = {.dtype = problem->dtype,
                                                .head_dim = (int32_t)problem->head_dim,
                                                .head_dim_v = (int32_t)problem->head_dim_v,
                                                .causal = problem->flags & KJIT_ATTENTION_CAUSAL ? 1 : 0,
                                                .consumers = 2,
                                                .tile = narrow ? 128 : 64,
                                                .stages = 2,
                                                .value_stages = 2,
                                                .pipelined = 1,
                                                .direct = wide ? 1 : 0,
                                                .staggered = problem->seq_q >= faster_from[row_of(problem)].staggered};
  for (out->count = 0; out->count < sizeof passes / sizeof *passes; out->count++) {
    int32_t *values = out->kernels[out->count].values;
    config.pass = passes[out->count];
    memcpy(values, &config, sizeof config);
    if (config_check(&sm90_backward_family, values, place, NULL) != KJIT_OK) break;
    config_canonicalize(&sm90_backward_family, values);
    out->kernels[out->count].family = &sm90_backward;
  }
  if (out->count == sizeof passes / sizeof *passes) return true;
  memset(out, 0, sizeof *out);
  return false;
}
