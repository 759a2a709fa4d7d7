/* The judgement of a variant: variant_judge.h.
 *
 * Each row is computed in float64, and as 16-bit arithmetic would, whose error gives the bound: 2 or 3 times it, and
 * one rounding. Rows without a key must give 0 and -inf, or the sink.
 *
 * Threads: one. */
#include "variant_judge.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/half.h"

static double value(const struct variant_trial *t, const uint16_t *values, size_t at) {
  return (double)half_to_float(t->dtype, values[at]);
}
static double rounded(const struct variant_trial *t, double x) {
  return (double)half_to_float(t->dtype, half_from_float(t->dtype, (float)x));
}

static bool sees(const struct variant_trial *t, struct variant_place_of at) {
  if (t->one->causal && at.k > at.q + t->shape->seq_kv - t->shape->seq_q) return false;
  int state = 1;
  if (t->states) {
    const int row = at.h * t->rows + at.q / t->one->block;
    state = t->states[row * t->columns + at.k / t->one->block];
  }
  if (state != 1) return state == 2;
  return !t->one->mask_at || t->one->mask_at(&t->world, at);
}

struct row {
  double *exact, *eager; /* scores, then probabilities */
  double lse;
};

/* Softmax in place. @return the log-sum-exp */
static double soften(double *scores, int count, const float *sink) {
  double largest = sink ? (double)*sink : -INFINITY, sum = 0;
  for (int k = 0; k < count; k++)
    largest = fmax(largest, scores[k]);
  if (isinf(largest)) {
    for (int k = 0; k < count; k++)
      scores[k] = 0;
    return -INFINITY;
  }
  for (int k = 0; k < count; k++)
    sum += exp(scores[k] - largest);
  if (sink) sum += exp((double)*sink - largest);
  for (int k = 0; k < count; k++)
    scores[k] = exp(scores[k] - largest) / sum;
  return largest + log(sum);
}

static void score_row(const struct variant_trial *t, struct variant_place_of at, struct row *row) {
  const struct variant_shape *s = t->shape;
  const double scale = 1 / sqrt((double)s->head_dim);
  const size_t d = (size_t)s->head_dim, kv_head = (size_t)(at.h / (s->heads / s->heads_kv));
  const size_t query = (((size_t)at.b * (size_t)s->seq_q + (size_t)at.q) * (size_t)s->heads + (size_t)at.h) * d;
  for (at.k = 0; at.k < s->seq_kv; at.k++) {
    const size_t key = (((size_t)at.b * (size_t)s->seq_kv + (size_t)at.k) * (size_t)s->heads_kv + kv_head) * d;
    double dot = 0;
    for (size_t i = 0; i < d; i++)
      dot += (double)t->q32[query + i] * (double)t->k32[key + i];
    const bool seen = sees(t, at);
    const double exact = t->one->score_at ? t->one->score_at(&t->world, dot * scale, at) : dot * scale;
    const double once = rounded(t, dot * scale);
    row->exact[at.k] = seen ? exact : -INFINITY;
    row->eager[at.k] = seen ? rounded(t, t->one->score_at ? t->one->score_at(&t->world, once, at) : once) : -INFINITY;
  }
  const float *sink = t->one->sinks ? &t->world.sinks[at.h] : NULL;
  row->lse = soften(row->exact, s->seq_kv, sink);
  soften(row->eager, s->seq_kv, sink);
  for (int k = 0; k < s->seq_kv; k++)
    row->eager[k] = rounded(t, row->eager[k]);
}

struct sums {
  double error, error16, largest, lse_error;
  struct variant_place_of worst;
};

static void judge_row(const struct variant_trial *t, struct variant_place_of at, struct row *row, struct sums *sums) {
  const struct variant_shape *s = t->shape;
  const size_t d = (size_t)s->head_dim, kv_head = (size_t)(at.h / (s->heads / s->heads_kv));
  const size_t out = (((size_t)at.b * (size_t)s->seq_q + (size_t)at.q) * (size_t)s->heads + (size_t)at.h) * d;
  double exact[256] = {0}, eager[256] = {0};
  score_row(t, at, row);
  for (int k = 0; k < s->seq_kv; k++) {
    const size_t key = (((size_t)at.b * (size_t)s->seq_kv + (size_t)k) * (size_t)s->heads_kv + kv_head) * d;
    if (row->exact[k] == 0 && row->eager[k] == 0) continue;
    for (size_t i = 0; i < d; i++) {
      exact[i] += row->exact[k] * (double)t->v32[key + i];
      eager[i] += row->eager[k] * (double)t->v32[key + i];
    }
  }
  for (size_t i = 0; i < d; i++) {
    const double error = fabs(value(t, t->o, out + i) - exact[i]);
    if (!(error <= sums->error)) {
      sums->error = isnan(error) ? INFINITY : error;
      sums->worst = (struct variant_place_of){at.b, at.h, at.q, (int)i};
    }
    sums->error16 = fmax(sums->error16, fabs(rounded(t, eager[i]) - exact[i]));
    sums->largest = fmax(sums->largest, fabs(exact[i]));
  }
  const double lse = (double)t->lse[((size_t)at.b * (size_t)s->heads + (size_t)at.h) * (size_t)s->seq_q + (size_t)at.q];
  const double lse_error = isinf(row->lse) && isinf(lse) && lse < 0 ? 0 : fabs(lse - row->lse);
  if (!(lse_error <= sums->lse_error)) sums->lse_error = isnan(lse_error) ? INFINITY : lse_error;
}

void variant_judge(const struct variant_trial *t, struct variant_report *report) {
  const struct variant_shape *s = t->shape;
  struct row row = {malloc((size_t)s->seq_kv * 8), malloc((size_t)s->seq_kv * 8), 0};
  struct sums sums = {0};
  for (int b = 0; b < s->batch; b++)
    for (int h = 0; h < s->heads; h++)
      for (int q = 0; q < s->seq_q; q++)
        judge_row(t, (struct variant_place_of){b, h, q, 0}, &row, &sums);
  free(row.exact);
  free(row.eager);
  report->error = sums.error;
  report->bound =
      (t->one->tolerance > 0 ? t->one->tolerance : 2) * sums.error16 + half_rounding_error(t->dtype, sums.largest);
  report->lse_error = sums.lse_error;
  report->lse_bound = t->one->lse_tolerance > 0 ? t->one->lse_tolerance : 2e-4 * (1 + sums.largest) + 1e-3;
  report->passed = sums.error <= report->bound && sums.lse_error <= report->lse_bound;
  snprintf(report->why, sizeof report->why, "error %.3g at [b %d, h %d, q %d, d %d], allowed %.3g; lse %.3g of %.3g",
           report->error, sums.worst.b, sums.worst.h, sums.worst.q, sums.worst.k, report->bound, report->lse_error,
           report->lse_bound);
}
