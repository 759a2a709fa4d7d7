/* attention_backward_sm90's planner for the three kernels that compute all gradients by five products a pair of tiles:
 * delta and zeros (pass 8), dk and dv while dq is summed in global memory (pass 7), dq from the sums (pass 16). Which
 * problems they get, and how, is a table of what was measured; docs/backward.md has the measurements. Pure; any thread.
 */
#include <stdint.h>
#include <string.h>

#include "attention/backward/backward_call.h"
#include "attention/backward/sm90_backward.h"
#include "attention_backward_sm90/layout.h"
#include "base/integer.h"
#include "family/config.h"

/* How all gradients are computed: by seven products in registers, or by these kernels, to which the other flags belong:
 * persistent blocks, consumers half a step apart, and first parts of tiles of sums that are stored, not added. */
enum way { SEVEN = 0, FIVE = 1, PERSISTENT = FIVE | 2, STAGGERED = FIVE | 4, STORING = FIVE | 8 };

/* Short names for the table, the same as in docs/backward.md; F: first parts are stored; N: none of these. */
enum { N = FIVE, S = STAGGERED, F = STORING, PF = PERSISTENT | F, PSF = PF | S };

/* The fastest way of an H200, by the larger head size, the order of addition (any, one), the mask (full, causal) and
 * the length. A length between two of these is taken as the one below it; shorter ones and larger head sizes take
 * SEVEN, because no card has shown that another way is faster there. Other cards get the same. In one order a problem
 * takes SEVEN, too, where it has fewer tiles of keys than `least`: tiles of a head cannot begin together. */
enum { LENGTHS = 6, SHORTEST = 512 };
static const struct {
  int32_t columns;
  int32_t least[2];            /* full, causal */
  uint8_t ways[2][2][LENGTHS]; /* 512, 1k, 2k, 4k, 8k, 16k */
} table[] = {{64,
              {256, 0},
              {{{PSF, PSF, PSF, PSF, PSF, PSF}, {PF, PF, PSF, PSF, PSF, S}},  /* any order: full, causal */
               {{PSF, PSF, PSF, PSF, PSF, S}, {PF, PSF, PSF, PSF, PSF, S}}}}, /* one order */
             {128,
              {768, 768},
              {{{PF, PF, PF, PF, F, F}, {PF, PF, PF, PF, F, F}}, {{PF, PF, PF, F, F, N}, {PF, PF, PF, PF, PF, F}}}}};

/* The most memory for sums that the planner asks for: 4 bytes for each element of dq. */
#define MOST_BYTES ((int64_t)1 << 30)

/* Grouped heads: with fewer blocks than a card has multiprocessors it is the block that takes longest, and that is done
 * sooner when dq has blocks of its own, one for each query head. */
#define LEAST_BLOCKS 132

static int64_t blocks_of(const kjit_attention_problem *problem) {
  return integer_divide_up(problem->seq_kv, 2 * BACKWARD_SM90_GROUP_ROWS) * problem->heads_kv * problem->batch;
}

/* The way of a problem, whose head sizes are those that a kernel takes. */
static unsigned way_of(const kjit_attention_problem *problem) {
  const int64_t columns = problem->head_dim > problem->head_dim_v ? problem->head_dim : problem->head_dim_v;
  const int64_t length = problem->seq_q < problem->seq_kv ? problem->seq_q : problem->seq_kv;
  const size_t in_order = problem->flags & KJIT_ATTENTION_DETERMINISTIC ? 1 : 0;
  const size_t causal = problem->flags & KJIT_ATTENTION_CAUSAL ? 1 : 0;
  const size_t rows = sizeof table / sizeof *table;
  size_t row = 0, place = 0;
  if (problem->heads_q != problem->heads_kv && blocks_of(problem) < LEAST_BLOCKS) return SEVEN;
  while (row < rows && columns > table[row].columns)
    row++;
  if (row == rows || length < SHORTEST) return SEVEN;
  if (in_order && blocks_of(problem) < table[row].least[causal]) return SEVEN;
  while (place + 1 < LENGTHS && length >> (place + 1) >= SHORTEST)
    place++;
  return table[row].ways[in_order][causal][place];
}

bool sm90_backward_choose_sums(const kjit_attention_problem *problem, uint32_t gradients,
                               const struct family_place *place, struct backward_choice *out) {
  static const int32_t passes[] = {BACKWARD_SM90_BEGIN, BACKWARD_SM90_SUM, BACKWARD_SM90_END};
  const bool narrow = problem->head_dim <= 64;
  const int64_t columns = narrow ? problem->head_dim : 128; /* of the sums */
  const unsigned way = way_of(problem);
  const bool all = gradients == (KJIT_GRADIENT_Q | KJIT_GRADIENT_K | KJIT_GRADIENT_V);
  if (!all || way == SEVEN || problem->head_dim % 8 || problem->head_dim_v % 8) return false;
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
                                                .staggered = (way & STAGGERED) == STAGGERED,
                                                .persistent = (way & PERSISTENT) == PERSISTENT,
                                                .stores = (way & STORING) == STORING};
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
