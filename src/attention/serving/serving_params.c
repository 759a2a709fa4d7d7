/* What becomes of a serving call's checked arguments: the problem, by which a kernel is chosen, and the kernel's
 * argument.
 *
 * Threads: everything here is pure. */
#include "attention/attention_arguments.h"
#include "attention/serving/serving_arguments.h"
#include "attention/serving/serving_views.h"
#include "attention/tensor_box.h"
#include "attention/tensor_check.h"

/* Columns of 16 bits that make a row of a box of TMA. */
#define BAND_COLUMNS 64

/* Can a tensor map have these strides? Those of axes of length 1 are never used. `together`: heads that one stride of
 * the map steps over. */
static bool can_be_mapped(const kjit_tensor *tensor, int64_t together) {
  for (int axis = OUTER; axis <= HEADS; axis++) {
    const int64_t stride = tensor_stride(tensor, (uint32_t)axis), limit = TENSOR_BOX_STRIDE_LIMIT;
    if (tensor->shape[axis] == 0) return false;
    if (tensor->shape[axis] > 1 && (stride <= 0 || stride >= (axis == HEADS ? limit / together : limit))) return false;
  }
  return true;
}

/* Is a head of keys or values a whole number of boxes' rows of 16-bit columns behind the one before it? */
static bool is_banded(const kjit_tensor *tensor) {
  const int64_t stride = tensor_stride(tensor, HEADS), heads = tensor->shape[HEADS];
  return heads == 1 || (stride % BAND_COLUMNS == 0 && stride / BAND_COLUMNS < INT32_MAX / heads);
}

/* Sequences of a ragged batch have as many keys as rows, but for those of a cache. */
static bool is_mixed(const kjit_attention_serving_args *args) {
  return args->batch > 1 && (args->cu_seqlens_q || args->seqused_q) && (args->page_table || args->seqused_k);
}

/* Positions of a sequence's keys up to which a call is simple: kernels count them by sums of fp32. */
#define SIMPLE_POSITIONS ((int64_t)1 << 26)

/* Elements of keys or values up to which a call is simple: kernels count their rows' places by units of 16 bytes in 32
 * bits. A sum of products of doubles is exact up to 2^53, and beyond that more than this. */
#define SIMPLE_ELEMENTS ((double)((int64_t)1 << 35))

static bool is_within(const kjit_tensor *tensor, double elements) {
  double last = 0;
  for (int axis = OUTER; axis <= HEADS; axis++)
    last += (double)(tensor->shape[axis] - 1) * (double)tensor_stride(tensor, (uint32_t)axis);
  return last < elements;
}

/* A call as most engines make it when they decode. `max_seqlen_q` must be no less than the rows that there are, because
 * a kernel for few rows would leave out the others. */
static bool is_simple(const kjit_attention_serving_args *args, const kjit_tensor *q, const kjit_tensor *k,
                      const kjit_tensor *v) {
  const int64_t positions = args->page_table ? args->max_pages * k->shape[SEQ] : k->shape[SEQ];
  const bool has_bound = args->max_seqlen_q && args->max_seqlen_q < q->shape[SEQ];
  return positions < SIMPLE_POSITIONS && !has_bound && !args->cu_seqlens_q && !args->seqused_q && !args->cu_seqlens_k &&
         !args->cu_seqlens_k_new && !args->cache_batch_idx && !args->leftpad_k && !args->sinks &&
         args->window_left < 0 && args->attention_chunk == 0 && args->num_splits == 0 &&
         is_within(k, SIMPLE_ELEMENTS) && is_within(v, SIMPLE_ELEMENTS);
}

/* Rows that a sequence has at most. */
static int64_t most_rows(const kjit_attention_serving_args *args, const kjit_tensor *q) {
  return args->max_seqlen_q && args->max_seqlen_q < q->shape[SEQ] ? args->max_seqlen_q : q->shape[SEQ];
}

/* A row sees at least the key of its own position, windows and chunks or not. So with no more new keys than rows each
 * is seen; without bounds on the left the last row sees all. */
static bool meets_new_keys(const kjit_attention_serving_args *args, const kjit_tensor *q, const kjit_tensor *k_new) {
  const bool is_regular = !args->cu_seqlens_q && !args->seqused_q && !args->cu_seqlens_k_new && q->shape[SEQ] > 0;
  return k_new->data && is_regular && k_new->shape[SEQ] <= SERVING_FEW_NEW_KEYS &&
         (k_new->shape[SEQ] <= q->shape[SEQ] || (args->window_left < 0 && args->attention_chunk == 0));
}

struct serving_problem serving_arguments_problem(const kjit_attention_serving_args *args) {
  const kjit_tensor q = serving_view_of(args, Q), k = serving_view_of(args, K), v = serving_view_of(args, V),
                    o = serving_view_of(args, O), k_new = serving_view_of(args, K_NEW);
  const int64_t group = q.shape[HEADS] / k.shape[HEADS];
  const int64_t most = most_rows(args, &q);
  const bool is_mapped = can_be_mapped(&q, group) && can_be_mapped(&k, 1) && can_be_mapped(&v, 1);
  return (struct serving_problem){.dtype = q.dtype,
                                  .head_dim = q.shape[COLUMNS],
                                  .head_dim_v = o.shape[COLUMNS],
                                  .heads_kv = k.shape[HEADS],
                                  .group = group,
                                  .packed_rows = most * group,
                                  .batch = args->batch,
                                  .rows = args->cu_seqlens_q ? q.shape[SEQ] : args->batch * most,
                                  .page_size = args->page_table ? k.shape[SEQ] : 0,
                                  .softcap = args->softcap > 0,
                                  .is_narrow = serving_is_narrow(args),
                                  .is_mixed = is_mixed(args),
                                  .is_banded = is_banded(&k) && is_banded(&v),
                                  .is_plain = is_mapped && !args->leftpad_k,
                                  .rotates = args->rotary_cos != NULL,
                                  .is_simple = is_simple(args, &q, &k, &v),
                                  .is_unsplit = args->num_splits == 1,
                                  .meets_new_keys = meets_new_keys(args, &q, &k_new)};
}

struct attention_serving_strides serving_strides_of(const kjit_tensor *tensor) {
  return (struct attention_serving_strides){
      .batch = tensor_stride(tensor, OUTER), .seq = tensor_stride(tensor, SEQ), .head = tensor_stride(tensor, HEADS)};
}

static struct attention_serving_descales descales_of(const kjit_tensor *tensor) {
  if (!tensor->data) return (struct attention_serving_descales){0};
  return (struct attention_serving_descales){tensor->data, tensor_stride(tensor, 0), tensor_stride(tensor, 1)};
}

/* A window, cut to what the kernel's int32 sums take, and to the chunk, beyond which a row sees nothing anyway. */
static int window(int32_t given, int32_t chunk) {
  int32_t width = given < SERVING_MAX_LENGTH ? given : SERVING_MAX_LENGTH - 1;
  if (chunk && (width < 0 || width > chunk - 1)) width = chunk - 1;
  return width;
}

static int exact_log2(int64_t value) {
  if (value <= 0 || (value & (value - 1)) != 0) return -1;
  int log2 = 0;
  while (value >> log2 != 1)
    log2++;
  return log2;
}

static void fill_numbers(const kjit_attention_serving_args *args, const kjit_tensor *q, const kjit_tensor *k,
                         struct attention_serving_params *params) {
  const struct attention_scale scale = attention_arguments_scale(args->scale, q->shape[COLUMNS]);
  const int32_t chunk = args->attention_chunk > SERVING_MAX_LENGTH ? 0 : args->attention_chunk;
  const bool is_causal = args->flags & KJIT_ATTENTION_CAUSAL;
  params->batch = (int)args->batch;
  params->heads_kv = (int)k->shape[HEADS];
  params->group = (int)(q->shape[HEADS] / k->shape[HEADS]);
  params->rows_q = (int)q->shape[SEQ];
  params->window_left = window(args->window_left, chunk);
  /* The one row of a sequence stands at its last key, so that nothing is to its right. */
  const bool is_one_row = params->rows_q == 1 && !args->cu_seqlens_q && !chunk;
  params->window_right = is_one_row ? -1 : window(is_causal ? 0 : args->window_right, chunk);
  params->chunk = chunk;
  params->cache_rows = (int)k->shape[OUTER];
  params->rows_k = args->page_table ? 0 : (int)k->shape[SEQ];
  params->page_size = args->page_table ? (int)k->shape[SEQ] : 0;
  params->page_shift = exact_log2(params->page_size);
  params->max_pages = (int)args->max_pages;
  params->rotary_columns = (int)args->rotary_columns;
  params->rotary_rows = (int)args->rotary_rows;
  params->rotary_interleaved = args->flags & KJIT_SERVING_ROTARY_INTERLEAVED ? 1 : 0;
  params->rotary_by_row = is_causal || args->window_left >= 0 || args->window_right >= 0;
  params->sinks_fp32 = args->sinks_dtype == KJIT_FP32;
  params->most_splits = args->num_splits;
  params->scale = scale.scale;
  params->scale_log2 = scale.scale_log2;
  params->softcap = args->softcap;
}

static void fill_arrays(const kjit_attention_serving_args *args, struct attention_serving_params *params) {
  params->cos = args->rotary_cos;
  params->sin = args->rotary_sin;
  params->sinks = args->sinks;
  params->cu_q = args->cu_seqlens_q;
  params->cu_k = args->cu_seqlens_k;
  params->cu_new = args->cu_seqlens_k_new;
  params->used_q = args->seqused_q;
  params->used_k = args->seqused_k;
  params->cache_index = args->cache_batch_idx;
  params->leftpad = args->leftpad_k;
  params->rotary_at = args->rotary_seqlens;
  params->page_table = args->page_table;
  params->page_table_stride = args->page_table_stride;
}

void serving_arguments_fill(const kjit_attention_serving_args *args, struct attention_serving_params *params) {
  const kjit_tensor q = serving_view_of(args, Q), k = serving_view_of(args, K), v = serving_view_of(args, V),
                    o = serving_view_of(args, O);
  const kjit_tensor k_new = serving_view_of(args, K_NEW), v_new = serving_view_of(args, V_NEW),
                    lse = serving_lse_view(args);
  *params = (struct attention_serving_params){.q = q.data,
                                              .k = k.data ? k.data : q.data, /* never read without keys */
                                              .v = v.data ? v.data : q.data,
                                              .o = o.data,
                                              .lse = lse.data,
                                              .q_stride = serving_strides_of(&q),
                                              .k_stride = serving_strides_of(&k),
                                              .v_stride = serving_strides_of(&v),
                                              .o_stride = serving_strides_of(&o)};
  if (lse.data) {
    params->lse_batch_stride = tensor_stride(&lse, 0);
    params->lse_head_stride = tensor_stride(&lse, 1);
  }
  params->k_descale = descales_of(&args->k_descale);
  params->v_descale = descales_of(&args->v_descale);
  fill_numbers(args, &q, &k, params);
  fill_arrays(args, params);
  if (!k_new.data) return;
  params->k_new = k_new.data;
  params->v_new = v_new.data;
  params->k_new_stride = serving_strides_of(&k_new);
  params->v_new_stride = serving_strides_of(&v_new);
  params->rows_new = (int)k_new.shape[SEQ];
}
