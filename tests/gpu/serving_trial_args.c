/* The arguments of a serving problem's call: tensors and int32 arrays in the trial's memory. */
#include "serving_judge.h"

#define MAX(a, b) ((a) > (b) ? (a) : (b))

static void *address(const struct serving_trial *trial, int which) {
  return (void *)(uintptr_t)trial->memory[which].card.address;
}

static kjit_tensor tensor(const struct serving_trial *trial, int which, size_t first, const int64_t shape[4],
                          const int64_t stride[4], uint32_t rank) {
  kjit_tensor out = {
      (char *)address(trial, which) + first * 2, trial->c.dtype, trial->card->ordinal, rank, 0, {0}, {0}};
  for (uint32_t i = 0; i < rank; i++) {
    out.shape[i] = shape[4 - rank + i];
    out.stride[i] = stride[4 - rank + i];
  }
  return out;
}

/* A tensor of rows one behind the other. */
static kjit_tensor rows_tensor(const struct serving_trial *trial, int which, int batch, int rows, int heads,
                               int columns, bool ragged) {
  const int64_t shape[4] = {batch, rows, heads, columns};
  const int64_t stride[4] = {(int64_t)rows * heads * columns, (int64_t)heads * columns, columns, 1};
  return tensor(trial, which, 0, shape, stride, ragged ? 3 : 4);
}

static kjit_tensor cache_tensor(const struct serving_trial *trial, size_t first, int columns) {
  const int64_t shape[4] = {trial->outer, trial->positions, trial->c.heads_kv, columns};
  const int64_t stride[4] = {trial->cache_stride[0], trial->cache_stride[1], trial->cache_stride[2], 1};
  kjit_tensor out = tensor(trial, SERVING_CACHE, 0, shape, stride, trial->c.cache == SERVING_RAGGED ? 3 : 4);
  out.data = (char *)out.data + first * serving_cache_bytes(&trial->c);
  if (trial->c.narrow) out.dtype = KJIT_FP8_E4M3;
  return out;
}

/* `first`: of the numbers; one for each sequence, or the same for all. */
static kjit_tensor descale_tensor(const struct serving_trial *trial, size_t first, bool by_sequence) {
  const int64_t heads = trial->c.heads_kv, shape[4] = {0, 0, trial->c.batch, heads};
  const int64_t stride[4] = {0, 0, by_sequence ? heads : 0, 1};
  kjit_tensor out = tensor(trial, SERVING_DESCALES, 2 * first, shape, stride, 2);
  out.dtype = KJIT_FP32;
  return out;
}

/* Takes its place among the int32 arrays. */
struct tables {
  int32_t *host;
  const int32_t *card;
  size_t used;
};
static const int32_t *table(struct tables *tables, size_t count) {
  const int32_t *at = tables->card + tables->used;
  tables->used += count;
  return at;
}

static void fill_page_table(struct serving_trial *trial, int32_t *host) {
  const struct serving_case *c = &trial->c;
  for (int i = 0; i < trial->table_rows * trial->max_pages; i++)
    host[i] = i % 3 == 0 ? -1 : i % 3 == 1 ? 2147480000 : trial->outer;
  for (int b = 0; b < c->batch; b++) {
    const int end = MAX(c->keys[b] + c->added[b], 0), pages = (end + c->page_size - 1) / c->page_size;
    for (int i = 0; i < pages; i++)
      host[serving_cache_row(c, b) * trial->max_pages + i] = trial->pages_first[b] + pages - 1 - i;
  }
}

/* Do sequences have different numbers of rows, which then must be told? */
static bool rows_differ(const struct serving_case *c) {
  for (int b = 1; b < c->batch; b++)
    if (c->rows[b] != c->rows[0]) return true;
  return false;
}

static void fill_tables(struct serving_trial *trial) {
  const struct serving_case *c = &trial->c;
  kjit_attention_serving_args *args = &trial->args;
  struct tables tables = {(int32_t *)(void *)trial->memory[SERVING_TABLES].host, address(trial, SERVING_TABLES), 0};
  int32_t *const host = tables.host;
  const size_t n = (size_t)c->batch + 1;
  int new_rows = 0;
  size_t at[8];
  for (int i = 0; i < 8; i++)
    at[i] = (size_t)(table(&tables, n) - tables.card);
  for (int b = 0; b <= c->batch; b++) {
    host[at[0] + (size_t)b] = trial->row_first[b];
    host[at[1] + (size_t)b] = (int32_t)trial->k_first[b];
    host[at[2] + (size_t)b] = new_rows;
    if (b == c->batch) break;
    new_rows += c->added[b];
    host[at[3] + (size_t)b] = c->rows[b];
    host[at[4] + (size_t)b] = c->keys[b];
    host[at[5] + (size_t)b] = serving_cache_row(c, b);
    host[at[6] + (size_t)b] = c->leftpad[b];
    host[at[7] + (size_t)b] = serving_rotary_position(trial, b);
  }
  if (c->begins_below_0) host[at[0]] = host[at[1]] = -5;
  for (int b = 0; b < c->batch && c->begins_below_0; b++)
    if (c->leftpad[b] == 0) host[at[6] + (size_t)b] = -5;
  if (c->ragged_q) args->cu_seqlens_q = tables.card + at[0];
  if (c->cache == SERVING_RAGGED) args->cu_seqlens_k = tables.card + at[1];
  if (c->ragged_new) args->cu_seqlens_k_new = tables.card + at[2];
  if (c->use_seqused_q || (!c->ragged_q && rows_differ(c))) args->seqused_q = tables.card + at[3];
  if (c->cache != SERVING_RAGGED) args->seqused_k = tables.card + at[4];
  if (c->use_cache_index) args->cache_batch_idx = tables.card + at[5];
  if (c->use_leftpad) args->leftpad_k = tables.card + at[6];
  if (c->use_rotary_seqlens) args->rotary_seqlens = tables.card + at[7];
  if (c->cache != SERVING_PAGED) return;
  args->page_table = tables.card + tables.used;
  args->page_table_stride = args->max_pages = trial->max_pages;
  fill_page_table(trial, host + tables.used);
}

void serving_fill_args(struct serving_trial *trial) {
  const struct serving_case *c = &trial->c;
  kjit_attention_serving_args *args = &trial->args;
  const int heads = c->heads_kv * c->group, batch = c->ragged_q ? 1 : c->batch;
  const int rows = c->ragged_q ? trial->total_rows : trial->q_rows;
  int new_rows = c->added[0];
  for (int b = 1; b < c->batch && c->ragged_new; b++)
    new_rows += c->added[b];
  *args = kjit_attention_serving_args_default();
  args->batch = c->batch;
  args->max_seqlen_q = c->max_rows ? c->max_rows : trial->q_rows;
  args->q = rows_tensor(trial, SERVING_Q, batch, rows, heads, c->head_dim, c->ragged_q);
  args->o = rows_tensor(trial, SERVING_O, batch, rows, heads, c->head_dim_v, c->ragged_q);
  args->k = cache_tensor(trial, 0, c->head_dim);
  args->v = cache_tensor(trial, trial->v_base, c->head_dim_v);
  if (c->lse) {
    const int64_t shape[4] = {1, batch, heads, rows}, stride[4] = {0, (int64_t)heads * rows, rows, 1};
    args->lse = tensor(trial, SERVING_LSE, 0, shape, stride, c->ragged_q ? 2 : 3);
    args->lse.dtype = KJIT_FP32;
  }
  if (c->append && new_rows) {
    const int new_batch = c->ragged_new ? 1 : c->batch;
    args->k_new = rows_tensor(trial, SERVING_K_NEW, new_batch, new_rows, c->heads_kv, c->head_dim, c->ragged_new);
    args->v_new = rows_tensor(trial, SERVING_V_NEW, new_batch, new_rows, c->heads_kv, c->head_dim_v, c->ragged_new);
  }
  if (c->narrow) {
    args->k_descale = descale_tensor(trial, 0, true);
    args->v_descale = descale_tensor(trial, (size_t)c->batch * (size_t)c->heads_kv, false);
  }
  args->window_left = c->window_left;
  args->window_right = c->window_right;
  args->attention_chunk = c->chunk;
  args->num_splits = c->num_splits;
  args->sm_margin = c->sm_margin;
  args->scale = c->scale;
  args->softcap = c->softcap;
  args->flags = (c->causal ? KJIT_ATTENTION_CAUSAL : 0) | (c->interleaved ? KJIT_SERVING_ROTARY_INTERLEAVED : 0);
  if (c->sinks) {
    args->sinks = address(trial, SERVING_SINKS);
    args->sinks_dtype = c->sinks;
  }
  if (c->rotary_columns && args->k_new.data) {
    args->rotary_cos = address(trial, SERVING_COS);
    args->rotary_sin = address(trial, SERVING_SIN);
    args->rotary_columns = c->rotary_columns;
    args->rotary_rows = (int64_t)(trial->memory[SERVING_COS].elements / (size_t)(c->rotary_columns / 2));
  }
  fill_tables(trial);
}
