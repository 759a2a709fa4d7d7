#include "attention/sm90/sm90_arguments.h"

#include <stddef.h>

#include "attention/attention_arguments.h"
#include "attention/tensor_check.h"
#include "base/error.h"
#include "base/integer.h"

#define ELEMENT_BYTES 2

enum lse_axis { LSE_BATCH, LSE_HEADS };

static kjit_status check_equal(const char *field, int32_t value, int64_t wanted, const char *what, kjit_error *error) {
  if (value == wanted) return KJIT_OK;
  return error_set(error, KJIT_ERR_INVALID_CONFIG, "%s is %d: must be the %s, %lld", field, (int)value, what,
                   (long long)wanted);
}

kjit_status sm90_arguments_match(const kjit_attention_problem *problem, const kjit_attention_sm90_config *config,
                                 kjit_error *error) {
  const int causal = problem->flags & KJIT_ATTENTION_CAUSAL ? 1 : 0;
  kjit_status status = attention_arguments_match_dtype(config->dtype, problem->dtype, error);
  if (status == KJIT_OK)
    status = check_equal("head_dim", config->head_dim, problem->head_dim, "tensors' head_dim", error);
  if (status == KJIT_OK)
    status = check_equal("head_dim_v", config->head_dim_v, problem->head_dim_v, "tensors' head_dim_v", error);
  return status == KJIT_OK ? check_equal("causal", config->causal, causal, "arguments' flag", error) : status;
}

/* (batch, head) pairs that are worked on together: those whose K and V fit a little more than half of L2, the rest
 * being for Q, O and what else runs; query heads that share K and V count once. Never so few that multiprocessors have
 * nothing to do, and all sections alike, as a small last one would leave most of the card idle. The fraction was
 * measured on an H200 (docs/performance.md). */
static int count_section(const kjit_attention_problem *problem, const struct sm90_tiles *tiles,
                         const kjit_device_info *device) {
  const int64_t pairs = tiles->heads * problem->batch;
  const int64_t bytes = problem->seq_kv * (problem->head_dim + problem->head_dim_v) * ELEMENT_BYTES;
  const int64_t fit = (int64_t)device->l2_bytes * 9 / 16 / bytes;
  const int64_t wanted = integer_max(integer_max(fit, 1) * tiles->heads_per_kv,
                                     integer_divide_up(device->multiprocessors, tiles->query_tiles));
  return (int)integer_divide_up(pairs, integer_divide_up(pairs, wanted));
}

void sm90_arguments_fill(const kjit_attention_args *args, const kjit_attention_problem *problem,
                         const struct sm90_tiles *tiles, const kjit_device_info *device,
                         struct attention_sm90_params *params) {
  const struct attention_scale scale = attention_arguments_scale(args->scale, problem->head_dim);
  params->lse = args->lse.data;
  params->lse_batch_stride = args->lse.data ? tensor_stride(&args->lse, LSE_BATCH) : 0;
  params->lse_head_stride = args->lse.data ? tensor_stride(&args->lse, LSE_HEADS) : 0;
  params->tickets = NULL;
  params->batch = (int)problem->batch;
  params->heads = (int)tiles->heads;
  params->heads_per_kv = (int)tiles->heads_per_kv;
  params->seq_q = (int)problem->seq_q;
  params->seq_kv = (int)problem->seq_kv;
  params->query_tiles = (int)tiles->query_tiles;
  params->section = count_section(problem, tiles, device);
  params->scale = scale.scale;
  params->scale_log2 = scale.scale_log2;
  params->group = (int)(problem->heads_q / problem->heads_kv);
  params->splits = 1;
  params->partial_rows = (int)tiles->rows;
  params->partials = NULL;
  params->arrivals = NULL;
}
