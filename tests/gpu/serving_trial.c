/* Memory of a serving problem: where every row, key and page lies, poison around them, copies to the card. The
 * references and the verdict are in serving_judge.c. */
#include "serving_trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serving_judge.h"
#include "support/e4m3.h"
#include "support/half.h"

/* NaN in e4m3, twice. */
#define NARROW_POISON 0x7f7f

#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* ---- Memory ---- */

static kjit_status allocate(struct serving_trial *trial, int which, size_t elements, kjit_error *error) {
  struct serving_memory *memory = &trial->memory[which];
  memory->elements = elements;
  memory->host = malloc((elements + 8) * 2);
  if (!memory->host) return card_fail(error, KJIT_ERR_NO_MEMORY, "no memory for %zu elements", elements);
  const bool narrow = which == SERVING_CACHE && trial->c.narrow;
  for (size_t i = 0; i < elements; i++)
    memory->host[i] = narrow ? NARROW_POISON : CARD_POISON;
  return card_buffer_create(trial->card, &memory->card, (elements + 8) * 2, error);
}

static kjit_status upload(struct serving_trial *trial, int which, kjit_error *error) {
  const struct serving_memory *memory = &trial->memory[which];
  if (!memory->card.address || !memory->elements) return KJIT_OK;
  return card_write(trial->card, memory->card.address, memory->host, memory->elements * 2, error);
}

/* A normal number, rounded to the case's type. */
static uint16_t normal(struct serving_trial *trial, struct random *random) {
  double sum = 0;
  for (int i = 0; i < 4; i++)
    sum += (double)(random_next(random) >> 40) / 16777216.0 - 0.5;
  return half_from_float(trial->c.dtype, (float)(sum * 1.7320508));
}

size_t serving_cache_bytes(const struct serving_case *c) {
  return c->narrow ? 1 : 2;
}

float serving_descale(const struct serving_trial *trial, int b, int head, bool is_v) {
  const struct serving_case *c = &trial->c;
  const size_t at = (size_t)(is_v ? c->batch : b) * (size_t)c->heads_kv + (size_t)head;
  float value = 1;
  if (c->narrow) memcpy(&value, trial->memory[SERVING_DESCALES].host + 2 * at, sizeof value);
  return value;
}

double serving_cached(const struct serving_trial *trial, const void *cache, size_t at, float descale) {
  if (trial->c.narrow) return (double)(e4m3_to_float(((const uint8_t *)cache)[at]) * descale);
  return (double)half_to_float(trial->c.dtype, ((const uint16_t *)cache)[at]);
}

static void place_cache(struct serving_trial *trial) {
  const struct serving_case *c = &trial->c;
  const int64_t d = MAX(c->head_dim, c->head_dim_v), heads = c->heads_kv, positions = trial->positions;
  const int64_t two = c->layout == SERVING_KV_TOGETHER ? 2 : 1;
  trial->cache_stride[0] = positions * heads * d * two;
  trial->cache_stride[1] = c->layout == SERVING_HND ? d : heads * d;
  trial->cache_stride[2] = c->layout == SERVING_HND ? positions * d : d;
  trial->v_base =
      (size_t)(c->layout == SERVING_KV_TOGETHER ? positions * heads * d : trial->cache_stride[0] * trial->outer);
}

/* Rows of q, keys of the cache, pages: how many there are of each. */
static void count_places(struct serving_trial *trial) {
  const struct serving_case *c = &trial->c;
  int most_keys = 1, pages = 1, slots = 0;
  for (int b = 0; b < c->batch; b++) {
    const int end = MAX(c->keys[b] + c->added[b], 0);
    trial->row_first[b] = trial->total_rows;
    trial->total_rows += c->rows[b] + (c->ragged_q && c->use_seqused_q ? 2 : 0);
    trial->q_rows = MAX(trial->q_rows, c->rows[b]);
    most_keys = MAX(most_keys, end);
    trial->k_first[b + 1] = trial->k_first[b] + (size_t)MAX(end - c->leftpad[b], 0);
    trial->pages_first[b] = pages;
    pages += (end + c->page_size - 1) / c->page_size;
    slots += end;
  }
  trial->row_first[c->batch] = trial->total_rows;
  trial->q_rows = MAX(trial->q_rows, 1);
  trial->table_rows = c->use_cache_index ? c->batch + 2 : c->batch;
  trial->max_pages = (most_keys + c->page_size - 1) / c->page_size + 2;
  trial->positions = c->cache == SERVING_PAGED    ? c->page_size
                     : c->cache == SERVING_RAGGED ? MAX(slots, 1)
                                                  : most_keys + 3;
  trial->outer = c->cache == SERVING_PAGED ? pages + 2 : c->cache == SERVING_RAGGED ? 1 : trial->table_rows;
  place_cache(trial);
}

int serving_cache_row(const struct serving_case *c, int b) {
  return c->use_cache_index ? c->batch + 1 - b : b;
}

size_t serving_slot(const struct serving_trial *trial, int b, int position) {
  const struct serving_case *c = &trial->c;
  if (c->cache == SERVING_RAGGED) return (trial->k_first[b] + (size_t)position) * (size_t)trial->cache_stride[1];
  if (c->cache == SERVING_DENSE)
    return (size_t)(serving_cache_row(c, b) * trial->cache_stride[0] + position * trial->cache_stride[1]);
  /* Pages of a sequence lie backwards, so that neighbours are not neighbours in memory. */
  const int end = MAX(c->keys[b] + c->added[b], 0), pages = (end + c->page_size - 1) / c->page_size;
  const int page = trial->pages_first[b] + pages - 1 - position / c->page_size;
  return (size_t)(page * trial->cache_stride[0] + position % c->page_size * trial->cache_stride[1]);
}

static void rotate(const struct serving_trial *trial, double *row, int position) {
  const struct serving_case *c = &trial->c;
  const int half = c->rotary_columns / 2;
  for (int i = 0; i < half; i++) {
    const size_t at = (size_t)MAX(position, 0) * (size_t)half + (size_t)i;
    const double cosine = (double)half_to_float(c->dtype, trial->memory[SERVING_COS].host[at]);
    const double sine = (double)half_to_float(c->dtype, trial->memory[SERVING_SIN].host[at]);
    double *const x = &row[c->interleaved ? 2 * i : i], *const y = &row[c->interleaved ? 2 * i + 1 : i + half];
    const double turned = *x * cosine - *y * sine, other = *x * sine + *y * cosine;
    *x = (double)half_to_float(c->dtype, half_from_float(c->dtype, (float)turned));
    *y = (double)half_to_float(c->dtype, half_from_float(c->dtype, (float)other));
  }
}

int serving_rotary_position(const struct serving_trial *trial, int b) {
  return trial->c.use_rotary_seqlens ? 2 * b + 1 : trial->c.keys[b];
}

void serving_query(const struct serving_trial *trial, int b, int row, int head, double *out) {
  const struct serving_case *c = &trial->c;
  const int heads = c->heads_kv * c->group;
  const int at = c->ragged_q ? trial->row_first[b] + row : b * trial->q_rows + row;
  const uint16_t *from =
      trial->memory[SERVING_Q].host + ((size_t)at * (size_t)heads + (size_t)head) * (size_t)c->head_dim;
  for (int i = 0; i < c->head_dim; i++)
    out[i] = (double)half_to_float(c->dtype, from[i]);
  const bool by_row = c->causal || c->window_left >= 0 || c->window_right >= 0;
  if (c->rotary_columns) rotate(trial, out, serving_rotary_position(trial, b) + (by_row ? row : 0));
}

/* A row of 16-bit numbers into the cache. */
static void put_cached(struct serving_trial *trial, size_t at, const uint16_t *row, int columns, float descale) {
  void *const cache = trial->memory[SERVING_CACHE].host;
  for (int i = 0; i < columns; i++) {
    if (trial->c.narrow)
      ((uint8_t *)cache)[at + (size_t)i] = e4m3_from_float(half_to_float(trial->c.dtype, row[i]) / descale);
    else
      ((uint16_t *)cache)[at + (size_t)i] = row[i];
  }
}

/* Numbers for one key or value: into the cache or among the new ones, and into the logical array. */
static void fill_key(struct serving_trial *trial, int b, int position, int head, struct random *random) {
  const struct serving_case *c = &trial->c;
  const int index = position - c->keys[b];
  size_t new_row = 0;
  for (int i = 0; i < b; i++)
    new_row += (size_t)c->added[i];
  for (int is_v = 0; is_v < 2; is_v++) {
    const int columns = is_v ? c->head_dim_v : c->head_dim;
    const bool is_new = c->append && index >= 0;
    const float descale = serving_descale(trial, b, head, is_v);
    uint16_t row[256];
    for (int i = 0; i < columns; i++)
      row[i] = normal(trial, random);
    if (is_new)
      memcpy(trial->memory[is_v ? SERVING_V_NEW : SERVING_K_NEW].host +
                 ((new_row + (size_t)index) * (size_t)c->heads_kv + (size_t)head) * (size_t)columns,
             row, (size_t)columns * sizeof *row);
    else if (position >= c->leftpad[b])
      put_cached(trial,
                 (is_v ? trial->v_base : 0) + serving_slot(trial, b, position) +
                     (size_t)(head * trial->cache_stride[2]),
                 row, columns, descale);
    if (position < c->leftpad[b]) continue;
    const size_t key = trial->k_first[b] + (size_t)(position - c->leftpad[b]);
    double *const logical = (is_v ? trial->v : trial->k) + (key * (size_t)c->heads_kv + (size_t)head) * (size_t)columns;
    for (int i = 0; i < columns; i++)
      logical[i] = (double)half_to_float(c->dtype, row[i]);
    if (!is_v && c->rotary_columns && index >= 0) rotate(trial, logical, serving_rotary_position(trial, b) + index);
    for (int i = 0; i < columns && c->narrow; i++)
      logical[i] = (double)(e4m3_to_float(e4m3_from_float((float)logical[i] / descale)) * descale);
  }
}

static void fill_inputs(struct serving_trial *trial) {
  const struct serving_case *c = &trial->c;
  struct random random = {c->seed};
  const size_t row = (size_t)c->heads_kv * (size_t)c->group * (size_t)c->head_dim;
  for (size_t i = 0; i < trial->memory[SERVING_COS].elements; i++) {
    const double angle = (double)(random_next(&random) >> 40) / 16777216.0 * 6.283;
    trial->memory[SERVING_COS].host[i] = half_from_float(c->dtype, (float)cos(angle));
    trial->memory[SERVING_SIN].host[i] = half_from_float(c->dtype, (float)sin(angle));
  }
  for (size_t i = 0; i < trial->memory[SERVING_DESCALES].elements / 2 && c->narrow; i++) {
    const float descale = 0.01f * (float)(1 + random_below(&random, 300));
    memcpy(trial->memory[SERVING_DESCALES].host + 2 * i, &descale, sizeof descale);
  }
  for (int b = 0; b < c->batch; b++) {
    uint16_t *q = trial->memory[SERVING_Q].host + (size_t)(c->ragged_q ? trial->row_first[b] : b * trial->q_rows) * row;
    for (size_t i = 0; i < (size_t)c->rows[b] * row; i++) {
      const bool is_sized = c->query_size > 0 && (c->query_step == 0 || i / row % (size_t)c->query_step == 0);
      q[i] =
          half_from_float(c->dtype, half_to_float(c->dtype, normal(trial, &random)) * (is_sized ? c->query_size : 1));
    }
    for (int position = 0; position < c->keys[b] + c->added[b]; position++)
      for (int head = 0; head < c->heads_kv; head++)
        fill_key(trial, b, position, head, &random);
  }
  for (int i = 0; i < c->heads_kv * c->group && c->sinks; i++) {
    const float sink = half_to_float(c->dtype, normal(trial, &random));
    if (c->sinks == KJIT_FP32)
      memcpy(trial->memory[SERVING_SINKS].host + 2 * i, &sink, sizeof sink);
    else
      trial->memory[SERVING_SINKS].host[i] = half_from_float(c->dtype, sink);
  }
}

/* ---- All of it ---- */

static void *address(const struct serving_trial *trial, int which) {
  return (void *)(uintptr_t)trial->memory[which].card.address;
}

static kjit_status allocate_all(struct serving_trial *trial, kjit_error *error) {
  const struct serving_case *c = &trial->c;
  const int heads = c->heads_kv * c->group;
  const size_t rows = (size_t)(c->ragged_q ? MAX(trial->total_rows, 1) : c->batch * trial->q_rows);
  const size_t d = (size_t)MAX(c->head_dim, c->head_dim_v);
  size_t new_rows = 0, positions = 64;
  for (int b = 0; b < c->batch; b++) {
    new_rows += (size_t)c->added[b];
    positions += (size_t)MAX(c->keys[b] + c->added[b] + c->rows[b], 0);
  }
  const size_t cache = (size_t)trial->outer * (size_t)trial->positions * (size_t)c->heads_kv * d * 2;
  const size_t sizes[SERVING_MEMORIES] = {
      [SERVING_Q] = rows * (size_t)(heads * c->head_dim),
      [SERVING_CACHE] = (cache * serving_cache_bytes(c) + 1) / 2,
      [SERVING_O] = rows * (size_t)(heads * c->head_dim_v),
      [SERVING_LSE] = rows * (size_t)heads * 2,
      [SERVING_K_NEW] = new_rows * (size_t)(c->heads_kv * c->head_dim),
      [SERVING_V_NEW] = new_rows * (size_t)(c->heads_kv * c->head_dim_v),
      [SERVING_TABLES] = ((size_t)(c->batch + 1) * 8 + (size_t)(trial->table_rows * trial->max_pages)) * 2,
      [SERVING_COS] = positions * (size_t)(c->rotary_columns / 2),
      [SERVING_SIN] = positions * (size_t)(c->rotary_columns / 2),
      [SERVING_SINKS] = (size_t)heads * 2,
      [SERVING_DESCALES] = (size_t)((c->batch + 1) * c->heads_kv) * 2,
  };
  kjit_status status = KJIT_OK;
  for (int i = 0; i < SERVING_SCHEDULE && status == KJIT_OK; i++)
    status = allocate(trial, i, sizes[i], error);
  trial->k = calloc(trial->k_first[c->batch] * (size_t)(c->heads_kv * c->head_dim) + 1, sizeof *trial->k);
  trial->v = calloc(trial->k_first[c->batch] * (size_t)(c->heads_kv * c->head_dim_v) + 1, sizeof *trial->v);
  if (status == KJIT_OK && (!trial->k || !trial->v))
    status = card_fail(error, KJIT_ERR_NO_MEMORY, "no memory for keys");
  return status;
}

/* Schedule and workspace, whose sizes the library tells. */
static kjit_status allocate_asked(struct serving_trial *trial, kjit_error *error) {
  kjit_attention_serving_sizes sizes = {.struct_size = sizeof sizes};
  kjit_status status = kjit_attention_serving_get_sizes(trial->runtime, &trial->args, &sizes, error);
  if (status != KJIT_OK || !sizes.workspace_bytes) return status;
  if (trial->c.schedule) {
    status = allocate(trial, SERVING_SCHEDULE, sizes.schedule_bytes / 2, error);
    if (status == KJIT_OK) status = upload(trial, SERVING_SCHEDULE, error);
    trial->args.schedule = address(trial, SERVING_SCHEDULE);
    trial->args.schedule_bytes = sizes.schedule_bytes;
  }
  if (status != KJIT_OK || !trial->c.workspace) return status;
  status = allocate(trial, SERVING_WORKSPACE, sizes.workspace_bytes / 2, error);
  trial->args.workspace = address(trial, SERVING_WORKSPACE);
  trial->args.workspace_bytes = sizes.workspace_bytes;
  if (status != KJIT_OK) return status;
  memset(trial->memory[SERVING_WORKSPACE].host, 0, sizes.workspace_bytes);
  return upload(trial, SERVING_WORKSPACE, error);
}

kjit_status serving_trial_create(struct serving_trial *trial, kjit_runtime *runtime, const struct card *card,
                                 const struct serving_case *c, kjit_error *error) {
  *trial = (struct serving_trial){.c = *c, .card = card, .runtime = runtime};
  count_places(trial);
  kjit_status status = allocate_all(trial, error);
  if (status == KJIT_OK) {
    fill_inputs(trial);
    serving_fill_args(trial);
    for (int i = 0; i < SERVING_SCHEDULE && status == KJIT_OK; i++)
      status = upload(trial, i, error);
  }
  if (status == KJIT_OK) status = allocate_asked(trial, error);
  if (status != KJIT_OK) serving_trial_destroy(trial);
  return status;
}

void serving_trial_destroy(struct serving_trial *trial) {
  for (int i = 0; i < SERVING_MEMORIES; i++) {
    card_buffer_destroy(trial->card, &trial->memory[i].card);
    free(trial->memory[i].host);
  }
  free(trial->k);
  free(trial->v);
  *trial = (struct serving_trial){0};
}

kjit_status serving_trial_reset(struct serving_trial *trial, kjit_error *error) {
  kjit_status status = upload(trial, SERVING_CACHE, error);
  if (status == KJIT_OK) status = upload(trial, SERVING_O, error);
  return status == KJIT_OK ? upload(trial, SERVING_LSE, error) : status;
}
