/* Is an attention kernel's output right?
 *
 * The reference is computed twice on the GPU by kernels of tools/support/reference: in float64, and in the 16-bit
 * type as eager PyTorch computes it. An output may differ from the float64 result by twice as much as the 16-bit
 * reference does, plus one rounding. attention_judge() finds the largest difference, infinite and NaN values, a
 * wrong log-sum-exp, changed inputs and words written outside of the output.
 *
 * Everything runs in order on the card's stream, and the functions wait for it. One thread at a time may use a card. */
#include "support/attention_check.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/half.h"

static size_t row_count(const struct trial_problem *p) {
  return (size_t)(p->asked.batch * p->asked.heads_q * p->asked.seq_q);
}

static kjit_status run_variants(struct attention_reference *reference, const struct attention_data *data,
                                CUdeviceptr lse, kjit_error *error) {
  const struct check_kernels *kernels = data->kernels;
  const struct trial_problem *p = &data->problem;
  struct attention_reference_params params = {
      .q = attention_data_view(data, TENSOR_Q),
      .k = attention_data_view(data, TENSOR_K),
      .v = attention_data_view(data, TENSOR_V),
      .o = (void *)(uintptr_t)reference->o64.address,
      .lse = (double *)(uintptr_t)lse,
      .scale = problem_scale(p),
      .heads = (int)p->asked.heads_q,
      .heads_per_kv = (int)(p->asked.heads_q / problem_heads_kv(p)),
      .seq_q = (int)p->asked.seq_q,
      .seq_kv = (int)p->asked.seq_kv,
      .head_dim = (int)p->asked.head_dim,
      .head_dim_v = (int)problem_head_dim_v(p),
      .causal = problem_is_causal(p),
      .is_bf16 = p->asked.dtype == KJIT_BF16,
  };
  const kjit_status status = check_reference(kernels, kernels->reference64, p->asked.batch, &params, error);
  if (status != KJIT_OK) return status;
  params.o = (void *)(uintptr_t)reference->o16.address;
  return check_reference(kernels, kernels->reference16, p->asked.batch, &params, error);
}

static kjit_status read_lse(struct attention_reference *reference, const struct attention_data *data,
                            struct card_buffer lse, kjit_error *error) {
  if (!lse.address) return card_synchronize(data->kernels->card, data->kernels->card->stream, error);
  reference->lse = malloc(lse.bytes);
  if (!reference->lse) return card_fail(error, KJIT_ERR_NO_MEMORY, "no memory for %zu bytes of lse", lse.bytes);
  return card_read(data->kernels->card, reference->lse, lse.address, lse.bytes, error);
}

kjit_status attention_reference_create(struct attention_reference *reference, const struct attention_data *data,
                                       kjit_error *error) {
  *reference = (struct attention_reference){0};
  const struct card *card = data->kernels->card;
  const size_t rows = row_count(&data->problem), elements = rows * (size_t)problem_head_dim_v(&data->problem);
  struct card_buffer lse = {0};
  kjit_status status = card_buffer_create(card, &reference->o64, elements * sizeof(double), error);
  if (status == KJIT_OK) status = card_buffer_create(card, &reference->o16, elements * sizeof(uint16_t), error);
  if (status == KJIT_OK && data->problem.lse) status = card_buffer_create(card, &lse, rows * sizeof(double), error);
  if (status == KJIT_OK) status = run_variants(reference, data, lse.address, error);
  if (status == KJIT_OK) status = read_lse(reference, data, lse, error);
  card_buffer_destroy(card, &lse);
  if (status != KJIT_OK) attention_reference_destroy(reference, card);
  return status;
}

void attention_reference_destroy(struct attention_reference *reference, const struct card *card) {
  card_buffer_destroy(card, &reference->o64);
  card_buffer_destroy(card, &reference->o16);
  free(reference->lse);
  *reference = (struct attention_reference){0};
}

static double float_of_bits(uint64_t bits) {
  const uint32_t word = (uint32_t)bits;
  float value;
  memcpy(&value, &word, sizeof value);
  return (double)value;
}

static kjit_status judge_output(const struct attention_data *data, const struct attention_reference *reference,
                                struct attention_verdict *verdict, kjit_error *error) {
  const struct trial_problem *p = &data->problem;
  const struct attention_compare_params params = {
      .out = attention_data_view(data, TENSOR_O),
      .ref = (const double *)(uintptr_t)reference->o64.address,
      .ref16 = (const unsigned short *)(uintptr_t)reference->o16.address,
      .shape = {p->asked.batch, p->asked.seq_q, p->asked.heads_q, problem_head_dim_v(p)},
      .is_bf16 = p->asked.dtype == KJIT_BF16,
  };
  struct attention_compare_result result = {0};
  const kjit_status status = check_compare(data->kernels, params, &result, error);
  if (status != KJIT_OK) return status;
  verdict->error = float_of_bits(result.worst >> 32);
  verdict->error16 = float_of_bits(result.error16);
  verdict->largest = float_of_bits(result.largest);
  verdict->bound = 2 * verdict->error16 + half_rounding_error(p->asked.dtype, verdict->largest);
  verdict->not_finite = result.not_finite;
  verdict->worst = result.not_finite ? ~result.first_not_finite : (uint32_t)~result.worst;
  return KJIT_OK;
}

/*
 * The allowance is twice the eager reference's error, so that error must itself make sense: a broken reference would
 * let anything pass. Scores of normal inputs stay below 6 * scale * sqrt(head_dim); rounding them changes a weight by
 * at most twice that rounding, relatively, and the output by that times the largest value of v, below 6 too. The same
 * again for the other roundings, and a factor of 2.
 */
static bool reference_makes_sense(const struct trial_problem *p, double error16, double largest) {
  const double most_score = 6 * problem_scale(p) * sqrt((double)p->asked.head_dim);
  const double most =
      2 * 2 * 6 * (half_rounding_error(p->asked.dtype, most_score) + half_rounding_error(p->asked.dtype, 1));
  return error16 <= most && largest > 0 && largest < 8;
}

static double largest_difference(const float *values, const double *exact, size_t count) {
  double largest = 0;
  for (size_t i = 0; i < count; i++) {
    const double value = (double)values[i];
    if (isinf(exact[i]) && isinf(value) && value < 0 && exact[i] < 0) continue; /* a row that sees no key */
    const double difference = fabs(value - exact[i]);
    if (!(difference <= largest)) largest = isnan(difference) ? INFINITY : difference;
  }
  return largest;
}

static kjit_status judge_lse(const struct attention_data *data, const struct attention_reference *reference,
                             struct attention_verdict *verdict, kjit_error *error) {
  if (!data->problem.lse) return KJIT_OK;
  const size_t rows = row_count(&data->problem);
  float *values = malloc(rows * sizeof *values);
  if (!values) return card_fail(error, KJIT_ERR_NO_MEMORY, "no memory for %zu rows of lse", rows);
  const kjit_status status =
      card_read(data->kernels->card, values, (CUdeviceptr)(uintptr_t)data->args.lse.data, rows * sizeof *values, error);
  if (status == KJIT_OK) verdict->lse_error = largest_difference(values, reference->lse, rows);
  verdict->lse_bound = problem_lse_bound(&data->problem);
  free(values);
  return status;
}

kjit_status attention_judge(const struct attention_data *data, const struct attention_reference *reference,
                            struct attention_verdict *verdict, kjit_error *error) {
  *verdict = (struct attention_verdict){0};
  kjit_status status = judge_output(data, reference, verdict, error);
  if (status == KJIT_OK) status = judge_lse(data, reference, verdict, error);
  if (status == KJIT_OK) status = attention_data_inspect(data, &verdict->traces, error);
  const struct attention_traces *traces = &verdict->traces;
  verdict->reference_is_sane = reference_makes_sense(&data->problem, verdict->error16, verdict->largest);
  verdict->passed = status == KJIT_OK && verdict->reference_is_sane && verdict->error <= verdict->bound &&
                    verdict->not_finite == 0 && verdict->lse_error <= verdict->lse_bound && !traces->inputs_changed &&
                    traces->o_stray == 0 && traces->lse_stray == 0;
  return status;
}

kjit_status attention_run(const struct attention_data *data, const struct attention_reference *reference,
                          const kjit_config *config, struct attention_verdict *verdict, kjit_error *error) {
  *verdict = (struct attention_verdict){0};
  CUstream stream = data->kernels->card->stream;
  kjit_status status = attention_data_poison(data, stream, error);
  if (status == KJIT_OK) status = kjit_attention_forward(data->kernels->runtime, config, &data->args, stream, error);
  if (status == KJIT_OK) status = card_synchronize(data->kernels->card, stream, error);
  return status == KJIT_OK ? attention_judge(data, reference, verdict, error) : status;
}

/* Print the index of a linear element as "[b, s, h, d]". */
static void print_place(const struct trial_problem *p, uint64_t element, char *text, size_t capacity) {
  const uint64_t d = (uint64_t)problem_head_dim_v(p), h = (uint64_t)p->asked.heads_q, s = (uint64_t)p->asked.seq_q;
  snprintf(text, capacity, "[%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 "]", element / d / h / s,
           element / d / h % s, element / d % h, element % d);
}

void attention_verdict_print(const struct attention_verdict *v, const struct trial_problem *problem,
                             char text[ATTENTION_VERDICT_TEXT_MAX]) {
  char place[96];
  print_place(problem, v->worst, place, sizeof place);
  int used = snprintf(text, ATTENTION_VERDICT_TEXT_MAX, "error %.3g at %s, allowed %.3g (16-bit reference %.3g)",
                      v->error, place, v->bound, v->error16);
  const size_t room = ATTENTION_VERDICT_TEXT_MAX;
  if (problem->lse)
    used += snprintf(text + used, room - (size_t)used, "; lse error %.3g, allowed %.3g", v->lse_error, v->lse_bound);
  if (v->not_finite)
    used += snprintf(text + used, room - (size_t)used, "; %" PRIu64 " elements not finite", v->not_finite);
  if (!v->reference_is_sane)
    used +=
        snprintf(text + used, room - (size_t)used, "; the reference itself (largest %.3g) cannot be right", v->largest);
  if (v->traces.inputs_changed) used += snprintf(text + used, room - (size_t)used, "; the inputs were changed");
  if (v->traces.o_stray || v->traces.lse_stray)
    used += snprintf(text + used, room - (size_t)used,
                     "; words written outside (negative: not written): o %" PRId64 ", lse %" PRId64, v->traces.o_stray,
                     v->traces.lse_stray);
  snprintf(text + used, room - (size_t)used, "; %s", v->passed ? "passed" : "FAILED");
}
