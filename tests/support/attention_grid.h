/* A grid of attention problems over everything that the choice of a kernel looks at: every head size, unequal ones,
 * both masks and types, lengths on either side of the rules' borders, few queries against many keys, small and large
 * batches, grouped heads. */
#ifndef KJIT_TESTS_ATTENTION_GRID_H
#define KJIT_TESTS_ATTENTION_GRID_H

#include <kjit/attention.h>

static const struct {
  int64_t seq_q, seq_kv;
} attention_grid_lengths[] = {{1, 1},        {1, 4096},    {64, 64},     {65, 100},  {128, 3000},
                              {200, 1024},   {1000, 1000}, {2047, 2047}, {2048, 31}, {4096, 4096},
                              {1023, 16384}, {7, 65536},   {100, 20000}};
static const struct {
  int64_t batch, heads_q, heads_kv;
} attention_grid_heads[] = {{1, 1, 1}, {2, 8, 2}, {16, 32, 1}, {1, 64, 8}};
static const struct {
  int64_t qk, v;
} attention_grid_unequal[] = {{192, 128}, {128, 192}, {64, 128}, {128, 64}, {40, 72},  {256, 64},
                              {64, 256},  {8, 256},   {256, 8},  {96, 192}, {256, 128}};

#define ATTENTION_GRID_COUNT(array) (sizeof(array) / sizeof *(array))

/* Multiples of 8 up to 256, then the unequal pairs. */
#define ATTENTION_GRID_HEAD_SIZES (32 + ATTENTION_GRID_COUNT(attention_grid_unequal))

#define ATTENTION_GRID_SIZE                                                                                            \
  (4 * ATTENTION_GRID_HEAD_SIZES * ATTENTION_GRID_COUNT(attention_grid_lengths) *                                      \
   ATTENTION_GRID_COUNT(attention_grid_heads))

static inline size_t attention_grid_digit(size_t *rest, size_t base) {
  const size_t digit = *rest % base;
  *rest /= base;
  return digit;
}

/* Problem `index` of ATTENTION_GRID_SIZE. */
static inline kjit_attention_problem attention_grid_problem(size_t index) {
  kjit_attention_problem problem = kjit_attention_problem_default();
  problem.dtype = attention_grid_digit(&index, 2) ? KJIT_BF16 : KJIT_FP16;
  problem.flags = attention_grid_digit(&index, 2) ? KJIT_ATTENTION_CAUSAL : 0;
  const size_t heads = attention_grid_digit(&index, ATTENTION_GRID_COUNT(attention_grid_heads));
  problem.batch = attention_grid_heads[heads].batch;
  problem.heads_q = attention_grid_heads[heads].heads_q;
  problem.heads_kv = attention_grid_heads[heads].heads_kv;
  const size_t length = attention_grid_digit(&index, ATTENTION_GRID_COUNT(attention_grid_lengths));
  problem.seq_q = attention_grid_lengths[length].seq_q;
  problem.seq_kv = attention_grid_lengths[length].seq_kv;
  problem.head_dim = 8 * ((int64_t)index + 1);
  problem.head_dim_v = problem.head_dim;
  if (index >= 32) {
    problem.head_dim = attention_grid_unequal[index - 32].qk;
    problem.head_dim_v = attention_grid_unequal[index - 32].v;
  }
  return problem;
}

#endif
