/* The references of a serving problem, in float64 and as eager PyTorch would compute it in 16 bits, and the verdict:
 * an output may differ from the float64 result by twice what the 16-bit reference does, plus one rounding. Rows that do
 * not count, and slots that nothing was appended to, must be as they were. And running a trial. */
#include "serving_judge.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/e4m3.h"
#include "support/half.h"

struct verdict {
  double error, error16, largest, lse_error;
  size_t wrong;    /* values that are not finite, or rows written that do not count */
  char first[160]; /* the first of them */
  double worst[3]; /* sequence, row and head of the largest error */
};

static double rounded(const struct serving_trial *trial, double value) {
  return (double)half_to_float(trial->c.dtype, half_from_float(trial->c.dtype, (float)value));
}

static bool sees(const struct serving_case *c, int row, int key, int keys, int rows) {
  const int at = row + keys - rows, right = c->causal ? 0 : c->window_right;
  if (right >= 0 && key > at + right) return false;
  if (c->window_left >= 0 && key < at - c->window_left) return false;
  if (!c->chunk) return true;
  const int chunk = at >= 0 ? at / c->chunk : -1;
  return key / c->chunk == chunk;
}

/* One row of one head. `o` and `o16` have head_dim_v elements. Returns the log-sum-exp. */
static double reference_row(const struct serving_trial *trial, int b, int row, int head, double *o, double *o16,
                            double *scores) {
  const struct serving_case *c = &trial->c;
  const int keys = (int)(trial->k_first[b + 1] - trial->k_first[b]), key_head = head / c->group;
  const double scale = c->scale > 0 ? (double)c->scale : 1 / sqrt((double)c->head_dim);
  double q[256], maximum = -INFINITY, sum = 0, sum16 = 0;
  serving_query(trial, b, row, head, q);
  for (int j = 0; j < keys; j++) {
    const size_t key = (trial->k_first[b] + (size_t)j) * (size_t)c->heads_kv + (size_t)key_head;
    const double *k = trial->k + key * (size_t)c->head_dim;
    double score = 0;
    for (int i = 0; i < c->head_dim; i++)
      score += q[i] * k[i];
    score *= scale;
    if (c->softcap > 0) score = (double)c->softcap * tanh(score / (double)c->softcap);
    scores[j] = sees(c, row, j, keys, c->rows[b]) ? score : -INFINITY;
    maximum = fmax(maximum, scores[j]);
  }
  double sink = -INFINITY;
  if (c->sinks == KJIT_FP32) {
    float value;
    memcpy(&value, trial->memory[SERVING_SINKS].host + 2 * head, sizeof value);
    sink = (double)value;
  } else if (c->sinks) {
    sink = (double)half_to_float(c->dtype, trial->memory[SERVING_SINKS].host[head]);
  }
  maximum = fmax(maximum, sink);
  memset(o, 0, (size_t)c->head_dim_v * sizeof *o);
  memset(o16, 0, (size_t)c->head_dim_v * sizeof *o16);
  if (maximum == -INFINITY) return -INFINITY;
  sum = sum16 = exp(sink - maximum);
  for (int j = 0; j < keys; j++) {
    sum += exp(scores[j] - maximum);
    sum16 += exp(rounded(trial, scores[j]) - maximum);
  }
  for (int j = 0; j < keys; j++) {
    if (scores[j] == -INFINITY) continue;
    const size_t key = (trial->k_first[b] + (size_t)j) * (size_t)c->heads_kv + (size_t)key_head;
    const double *v = trial->v + key * (size_t)c->head_dim_v;
    const double p = exp(scores[j] - maximum) / sum;
    const double p16 = rounded(trial, exp(rounded(trial, scores[j]) - maximum) / sum16);
    for (int i = 0; i < c->head_dim_v; i++) {
      o[i] += p * v[i];
      o16[i] += p16 * v[i];
    }
  }
  return maximum + log(sum);
}

static void complain(struct verdict *verdict, const char *what, int b, int row, int head) {
  if (verdict->wrong++ == 0)
    snprintf(verdict->first, sizeof verdict->first, "%s at sequence %d, row %d, head %d", what, b, row, head);
}

static void judge_row(const struct serving_trial *trial, const uint16_t *o, const float *lse, int b, int row, int head,
                      double *scores, struct verdict *verdict) {
  const struct serving_case *c = &trial->c;
  double exact[256], exact16[256];
  const double exact_lse = reference_row(trial, b, row, head, exact, exact16, scores);
  for (int i = 0; i < c->head_dim_v; i++) {
    const double value = (double)half_to_float(c->dtype, o[i]), error = fabs(value - exact[i]);
    if (!isfinite(value)) complain(verdict, "not finite", b, row, head);
    if (error > verdict->error) {
      verdict->error = error;
      verdict->worst[0] = b, verdict->worst[1] = row, verdict->worst[2] = head;
    }
    verdict->error16 = fmax(verdict->error16, fabs(rounded(trial, exact16[i]) - exact[i]));
    verdict->largest = fmax(verdict->largest, fabs(exact[i]));
  }
  if (!lse) return;
  if (isinf(exact_lse) && isinf(*lse) && *lse < 0) return;
  const double error = fabs((double)*lse - exact_lse);
  if (!(error <= 1e30)) complain(verdict, "log-sum-exp", b, row, head);
  verdict->lse_error = fmax(verdict->lse_error, error);
}

/* Rows of the tensor that belong to no sequence, or lie behind its last, were not written. */
static void judge_untouched(const struct serving_trial *trial, const uint16_t *o, const bool *counts, int rows,
                            struct verdict *verdict) {
  const int heads = trial->c.heads_kv * trial->c.group;
  const size_t columns = (size_t)heads * (size_t)trial->c.head_dim_v;
  for (int row = 0; row < rows; row++)
    for (size_t i = 0; i < columns && !counts[row]; i++)
      if (o[(size_t)row * columns + i] != CARD_POISON) complain(verdict, "written outside", -1, row, 0);
}

static void judge_rows(const struct serving_trial *trial, const uint16_t *o, const float *lse,
                       struct verdict *verdict) {
  const struct serving_case *c = &trial->c;
  const int heads = c->heads_kv * c->group, rows = c->ragged_q ? trial->total_rows : c->batch * trial->q_rows;
  bool *const counts = calloc((size_t)rows + 1, sizeof *counts);
  double *const scores = calloc(trial->k_first[c->batch] + 1, sizeof *scores);
  for (int b = 0; b < c->batch && counts && scores; b++)
    for (int row = 0; row < c->rows[b]; row++) {
      const int at = c->ragged_q ? trial->row_first[b] + row : b * trial->q_rows + row;
      counts[at] = true;
      for (int head = 0; head < heads; head++) {
        const size_t lse_at = c->ragged_q
                                  ? (size_t)head * (size_t)trial->total_rows + (size_t)at
                                  : ((size_t)b * (size_t)heads + (size_t)head) * (size_t)trial->q_rows + (size_t)row;
        judge_row(trial, o + ((size_t)at * (size_t)heads + (size_t)head) * (size_t)c->head_dim_v,
                  lse ? lse + lse_at : NULL, b, row, head, scores, verdict);
      }
    }
  if (counts) judge_untouched(trial, o, counts, rows, verdict);
  free(counts);
  free(scores);
}

/* The cache is as it was but for what was appended, which is what was given: bitwise, or rotated to within a rounding.
 */
static void judge_cache(const struct serving_trial *trial, uint16_t *cache, struct verdict *verdict) {
  const struct serving_case *c = &trial->c;
  uint16_t *const before = trial->memory[SERVING_CACHE].host;
  const size_t bytes = serving_cache_bytes(c);
  for (int b = 0; b < c->batch && c->append; b++)
    for (int position = c->keys[b] > 0 ? c->keys[b] : 0; position < c->keys[b] + c->added[b]; position++)
      for (int head = 0; head < c->heads_kv; head++)
        for (int is_v = 0; is_v < 2; is_v++) {
          const int columns = is_v ? c->head_dim_v : c->head_dim;
          const size_t at =
              (is_v ? trial->v_base : 0) + serving_slot(trial, b, position) + (size_t)(head * trial->cache_stride[2]);
          const int key = position - c->leftpad[b];
          const double *const exact =
              (is_v ? trial->v : trial->k) +
              ((trial->k_first[b] + (size_t)key) * (size_t)c->heads_kv + (size_t)head) * (size_t)columns;
          for (int i = 0; i < columns; i++) {
            const double value = serving_cached(trial, cache, at + (size_t)i, serving_descale(trial, b, head, is_v));
            const double step = c->narrow ? fabs(exact[i]) / 8 : 2.5 * half_rounding_error(c->dtype, exact[i]);
            const double allowed = !is_v && c->rotary_columns ? step : 0;
            if (!(fabs(value - exact[i]) <= allowed))
              complain(verdict, is_v ? "appended v" : "appended k", b, position, head);
            memcpy((char *)cache + (at + (size_t)i) * bytes, (char *)before + (at + (size_t)i) * bytes, bytes);
          }
        }
  if (memcmp(cache, before, trial->memory[SERVING_CACHE].elements * 2) != 0)
    complain(verdict, "the cache was changed", -1, 0, 0);
}

bool serving_trial_judge(struct serving_trial *trial, char text[SERVING_TEXT_MAX], kjit_error *error) {
  const struct serving_memory *o = &trial->memory[SERVING_O], *lse = &trial->memory[SERVING_LSE];
  const struct serving_memory *cache = &trial->memory[SERVING_CACHE];
  struct verdict verdict = {.first = ""};
  uint16_t *const o_read = malloc(o->elements * 2 + 2), *const cache_read = malloc(cache->elements * 2 + 2);
  float *const lse_read = malloc(lse->elements * 2 + 4);
  kjit_status status = o_read && cache_read && lse_read ? KJIT_OK : KJIT_ERR_NO_MEMORY;
  if (status == KJIT_OK) status = card_read(trial->card, o_read, o->card.address, o->elements * 2, error);
  if (status == KJIT_OK) status = card_read(trial->card, cache_read, cache->card.address, cache->elements * 2, error);
  if (status == KJIT_OK) status = card_read(trial->card, lse_read, lse->card.address, lse->elements * 2, error);
  if (status == KJIT_OK) {
    judge_rows(trial, o_read, trial->c.lse ? lse_read : NULL, &verdict);
    judge_cache(trial, cache_read, &verdict);
  }
  free(o_read);
  free(cache_read);
  free(lse_read);
  const double bound = 2 * verdict.error16 + half_rounding_error(trial->c.dtype, verdict.largest) + 1e-5;
  const bool passed = status == KJIT_OK && verdict.wrong == 0 && verdict.error <= bound && verdict.lse_error <= 2e-3;
  snprintf(text, SERVING_TEXT_MAX, "%s: error %.3g of %.3g (sequence %g row %g head %g), lse %.3g, %zu wrong %s",
           passed ? "right" : "WRONG", verdict.error, bound, verdict.worst[0], verdict.worst[1], verdict.worst[2],
           verdict.lse_error, verdict.wrong, verdict.first);
  return passed;
}

kjit_status serving_trial_enqueue(struct serving_trial *trial, CUstream stream, kjit_error *error) {
  kjit_status status = KJIT_OK;
  if (trial->args.schedule) status = kjit_attention_schedule(trial->runtime, &trial->args, stream, error);
  return status == KJIT_OK ? kjit_attention_serving(trial->runtime, &trial->args, stream, error) : status;
}

uint64_t serving_trial_digest(struct serving_trial *trial, kjit_error *error) {
  static const int written[] = {SERVING_O, SERVING_LSE, SERVING_CACHE};
  uint64_t digest = 0;
  for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
    const struct serving_memory *memory = &trial->memory[written[i]];
    uint16_t *read = malloc(memory->elements * 2 + 2);
    if (read && card_read(trial->card, read, memory->card.address, memory->elements * 2, error) == KJIT_OK)
      for (size_t element = 0; element < memory->elements; element++)
        digest = (digest ^ read[element]) * 0x100000001b3u;
    free(read);
  }
  return digest;
}
