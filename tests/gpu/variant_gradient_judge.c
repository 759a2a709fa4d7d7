/* Gradients of an attention variant in double precision: variant_gradient_trial.h. Each row's probabilities follow from
 * the variant's text, evaluated on the host; derivatives by what it reads from differences.
 *
 * Threads: nothing is shared. */
#include "variant_gradient_trial.h"

#include <math.h>
#include <stdlib.h>

#include "support/half.h"

struct pair {
  double probability, slope;
};

struct reference {
  double *gradient[VARIANT_GRADIENTS];
};

static size_t count_of(const struct variant_gradient_trial *t, int gradient) {
  return gradient < 3 ? t->wide_count[DQ + gradient] : t->narrow_count[DSLOPE + gradient - 3];
}

static double found_at(const struct variant_gradient_trial *t, int gradient, size_t place) {
  return gradient < 3 ? (double)half_to_float(KJIT_FP16, t->wide[DQ + gradient][place])
                      : (double)t->narrow[DSLOPE + gradient - 3][place];
}

static float at(const struct variant_gradient_trial *t, int which, int b, int i, int h, int column) {
  const struct variant_gradient_shape *s = t->shape;
  const bool keys = which == K || which == V;
  const int length = keys ? s->seq_kv : s->seq_q, heads = keys ? s->heads_kv : s->heads;
  return half_to_float(KJIT_FP16, t->wide[which][((b * length + i) * heads + h) * s->head_dim + column]);
}

static double product(const struct variant_gradient_trial *t, int a, int i, int ha, int c, int j, int hc, int b) {
  double sum = 0;
  for (int column = 0; column < t->shape->head_dim; column++)
    sum += (double)at(t, a, b, i, ha, column) * (double)at(t, c, b, j, hc, column);
  return sum;
}

static kjit_variant_evaluation place_of(const struct variant_gradient_trial *t, int b, int h, int q, int k) {
  const struct variant_gradient_shape *s = t->shape;
  return (kjit_variant_evaluation){.struct_size = sizeof(kjit_variant_evaluation),
                                   .seq_q = s->seq_q,
                                   .seq_kv = s->seq_kv,
                                   .heads_q = s->heads,
                                   .heads_kv = s->heads_kv,
                                   .scalar_values = t->scalars,
                                   .tensors = t->host,
                                   .score = product(t, Q, q, h, K, k, h / (s->heads / s->heads_kv), b) /
                                            sqrt((double)s->head_dim),
                                   .b = b,
                                   .h = h,
                                   .q = q,
                                   .k = k};
}

/* The derivative of the score at a place by an element that it may read, by a difference. */
static double derivative_by(const struct variant_gradient_trial *t, kjit_variant_evaluation place, float *element) {
  const float kept = *element;
  double score[2], at_element[2];
  for (int i = 0; i < 2; i++) {
    *element = kept + (i ? 0.0078125f : -0.0078125f);
    at_element[i] = (double)*element;
    const kjit_status status = kjit_attention_variant_evaluate(t->variant, &place, NULL);
    score[i] = status == KJIT_OK ? place.new_score : NAN;
  }
  *element = kept;
  return (score[1] - score[0]) / (at_element[1] - at_element[0]);
}

/* What a pair adds to the gradients of the elements that the scores above read. */
static void add_elements(const struct variant_gradient_trial *t, int b, int h, int q, int k, double ds,
                         struct reference *out) {
  const int keys = t->shape->seq_kv, row = (h * t->shape->seq_q + q) * keys;
  const int places[] = {row + k, row, k};
  const kjit_variant_evaluation place = place_of(t, b, h, q, k);
  out->gradient[3][h] += ds * derivative_by(t, place, &t->narrow[SLOPE][h]);
  for (int i = 0; i < 3; i++) {
    bool known = false;
    for (int j = 0; j < i; j++)
      known = known || places[j] == places[i];
    if (!known) out->gradient[4][places[i]] += ds * derivative_by(t, place, &t->narrow[BIAS][places[i]]);
  }
}

/* One row's probabilities and derivatives by the texts. */
static void row_of(const struct variant_gradient_trial *t, int b, int h, int q, struct pair *pairs) {
  const struct variant_gradient_shape *s = t->shape;
  double most = t->one->sinks ? (double)t->narrow[SINKS][h] : -INFINITY, sum = 0;
  for (int k = 0; k < s->seq_kv; k++) {
    kjit_variant_evaluation place = place_of(t, b, h, q, k);
    const kjit_status status = kjit_attention_variant_evaluate(t->variant, &place, NULL);
    const bool seen = status == KJIT_OK && place.seen && (!t->one->causal || k <= q + s->seq_kv - s->seq_q);
    pairs[k] = (struct pair){seen ? place.new_score : -INFINITY, place.score_grad};
    most = fmax(most, pairs[k].probability);
  }
  for (int k = 0; k < s->seq_kv; k++) {
    pairs[k].probability = isinf(pairs[k].probability) ? 0 : exp(pairs[k].probability - most);
    sum += pairs[k].probability;
  }
  if (t->one->sinks) sum += exp((double)t->narrow[SINKS][h] - most);
  for (int k = 0; k < s->seq_kv && sum > 0; k++)
    pairs[k].probability /= sum;
}

static void add_row(const struct variant_gradient_trial *t, int b, int h, int q, struct pair *pairs,
                    struct reference *out) {
  const struct variant_gradient_shape *s = t->shape;
  const int hk = h / (s->heads / s->heads_kv), d = s->head_dim;
  double *dp = malloc((size_t)s->seq_kv * sizeof *dp), delta = 0;
  row_of(t, b, h, q, pairs);
  for (int k = 0; k < s->seq_kv; k++) {
    dp[k] = product(t, DOUT, q, h, V, k, hk, b);
    delta += pairs[k].probability * dp[k];
  }
  delta -= (double)t->narrow[DLSE][(b * s->heads + h) * s->seq_q + q];
  for (int k = 0; k < s->seq_kv; k++) {
    const double p = pairs[k].probability;
    const double ds = p > 0 ? p * (dp[k] - delta) * pairs[k].slope / sqrt((double)d) : 0;
    if (p > 0 && t->one->tensors) add_elements(t, b, h, q, k, p * (dp[k] - delta), out);
    for (int c = 0; c < d; c++) {
      out->gradient[0][((b * s->seq_q + q) * s->heads + h) * d + c] += ds * (double)at(t, K, b, k, hk, c);
      out->gradient[1][((b * s->seq_kv + k) * s->heads_kv + hk) * d + c] += ds * (double)at(t, Q, b, q, h, c);
      out->gradient[2][((b * s->seq_kv + k) * s->heads_kv + hk) * d + c] += p * (double)at(t, DOUT, b, q, h, c);
    }
  }
  free(dp);
}

void variant_gradients_judge(const struct variant_gradient_trial *t, struct variant_gradient_report *report) {
  const struct variant_gradient_shape *s = t->shape;
  struct reference reference;
  struct pair *pairs = calloc((size_t)s->seq_kv, sizeof *pairs);
  for (int i = 0; i < VARIANT_GRADIENTS; i++)
    reference.gradient[i] = calloc(count_of(t, i), sizeof(double));
  for (int row = 0; row < s->batch * s->heads * s->seq_q; row++)
    add_row(t, row / s->seq_q / s->heads, row / s->seq_q % s->heads, row % s->seq_q, pairs, &reference);
  report->passed = true;
  for (int i = 0; i < VARIANT_GRADIENTS; i++) {
    double most = 0, error = 0;
    for (size_t place = 0; place < count_of(t, i); place++) {
      const double found = found_at(t, i, place);
      most = fmax(most, fabs(reference.gradient[i][place]));
      error = isfinite(found) ? fmax(error, fabs(found - reference.gradient[i][place])) : INFINITY;
    }
    report->error[i] = most > 0 ? error / most : error;
    report->passed = report->passed && report->error[i] <= TOLERANCE_PERCENT / 100.0;
    free(reference.gradient[i]);
  }
  free(pairs);
}
