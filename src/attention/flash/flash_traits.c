#include "attention/flash/flash_traits.h"

enum { SLICE = 16 /* columns: the depth of a product, and two tiles of O */ };

static int32_t clamp(int64_t value) {
  return value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : (int32_t)value;
}

kjit_flash_traits flash_traits_of(const kjit_attention_problem *problem) {
  /* One key head for all is no group: its stride is 0, and every query head finds it. */
  return (kjit_flash_traits){.causal = problem->flags & KJIT_ATTENTION_CAUSAL ? 1 : 0,
                             .grouped = problem->heads_kv != problem->heads_q && problem->heads_kv != 1,
                             .head_dim = clamp(problem->head_dim),
                             .head_dim_v = clamp(problem->head_dim_v)};
}

int32_t flash_traits_columns(int32_t head_dim) {
  /* Unsigned: numbers that no rule has seen may come here, and shall mean nothing instead of anything. */
  return (int32_t)(((uint32_t)head_dim + SLICE - 1) / SLICE * SLICE);
}

int32_t flash_traits_d_head(const kjit_flash_traits *traits) {
  const int32_t larger = traits->head_dim > traits->head_dim_v ? traits->head_dim : traits->head_dim_v;
  return larger <= FLASH_MIN_D_HEAD ? FLASH_MIN_D_HEAD
         : larger > FLASH_MAX_HEAD  ? larger
                                    : flash_traits_columns(larger);
}
