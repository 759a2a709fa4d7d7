/* The gradients of an attention problem on the GPU, checked.
 *
 * 1. dO is random in the layout of o, or one row for all; dLSE is random. dq, dk and dv lie as q, k and v do (strides
 *    of 0 become contiguous ones), each allocation with a guard zone, all filled with a NaN pattern.
 * 2. attention_gradients.cu computes the references, in float64 and as eager PyTorch computes them in 16 bits.
 * 3. Each gradient is compared, and the words that lost the pattern are counted.
 *
 * Everything runs in order on the card's stream, and the functions wait for it. One thread at a time may use a card. */
#include "support/attention_gradients.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/check_sources.h"
#include "support/half.h"

#define GUARD_BYTES     ((size_t)1 << 20)
#define ELEMENT_BYTES   sizeof(uint16_t)
#define MOST_PAIR_BYTES ((double)(4ull << 30)) /* of P, and again of dS */
#define THREADS         128                    /* kThreads of attention_gradients.cu */

static const enum problem_tensor tensor_of[GRADIENT_COUNT] = {TENSOR_Q, TENSOR_K, TENSOR_V};
static const char *const names[GRADIENT_COUNT] = {"dq", "dk", "dv"};

static bool is_wanted(const struct gradients *g, enum gradient which) {
  return !g->choices.wanted || g->choices.wanted >> which & 1;
}

/* Where a gradient lies: as its tensor, but never with strides of 0. */
static struct tensor_place place_of(const struct gradients *g, enum gradient which) {
  struct trial_problem problem = g->data->problem;
  if (problem.layout == LAYOUT_SHARED_KV) problem.layout = LAYOUT_BSHD;
  return problem_place(&problem, tensor_of[which]);
}

static kjit_tensor *argument(struct gradients *g, enum gradient which) {
  kjit_tensor *const table[GRADIENT_COUNT] = {&g->args.dq, &g->args.dk, &g->args.dv};
  return table[which];
}

static size_t row_count(const struct trial_problem *p) {
  return (size_t)(p->asked.batch * p->asked.heads_q * p->asked.seq_q);
}

static int64_t element_count(const struct gradients *g, enum gradient which) {
  const struct tensor_place place = place_of(g, which);
  return place.shape[0] * place.shape[1] * place.shape[2] * place.shape[3];
}

/* ---- Memory ---- */

static kjit_tensor describe(const struct gradients *g, CUdeviceptr address, const int64_t shape[4],
                            const int64_t stride[4]) {
  kjit_tensor t = {.data = (void *)(uintptr_t)address,
                   .dtype = g->data->problem.asked.dtype,
                   .device = g->data->kernels->card->ordinal,
                   .rank = 4};
  memcpy(t.shape, shape, sizeof t.shape);
  memcpy(t.stride, stride, sizeof t.stride);
  return t;
}

/* Allocate the memory of those gradients that own some; a packed layout has one allocation for all three. */
static kjit_status place_gradient(struct gradients *g, enum gradient which, kjit_error *error) {
  const struct card *card = g->data->kernels->card;
  const struct tensor_place place = place_of(g, which);
  const enum gradient owner = place.owner == TENSOR_Q ? GRADIENT_Q : place.owner == TENSOR_K ? GRADIENT_K : GRADIENT_V;
  kjit_status status = KJIT_OK;
  if (owner == which) {
    const size_t bytes = (size_t)place.span * ELEMENT_BYTES + 2 * GUARD_BYTES;
    status = card_buffer_create(card, &g->memory[which], bytes, error);
  }
  const CUdeviceptr address = g->memory[owner].address + GUARD_BYTES + (size_t)place.first * ELEMENT_BYTES;
  if (is_wanted(g, which)) *argument(g, which) = describe(g, address, place.shape, place.stride);
  return status;
}

static kjit_status place_dout(struct gradients *g, kjit_error *error) {
  const struct card *card = g->data->kernels->card;
  struct tensor_place place = problem_place(&g->data->problem, TENSOR_O);
  if (g->choices.expanded) {
    place.stride[0] = place.stride[1] = place.stride[2] = 0;
    place.span = place.shape[3];
  }
  kjit_status status = card_buffer_create(card, &g->dout, (size_t)place.span * ELEMENT_BYTES + 2 * GUARD_BYTES, error);
  if (status == KJIT_OK) status = card_poison(card, g->dout, card->stream, error);
  if (status != KJIT_OK) return status;
  g->args.dout = describe(g, g->dout.address + GUARD_BYTES, place.shape, place.stride);
  struct fill_normal_params params = {.seed = g->choices.seed, .is_bf16 = g->data->problem.asked.dtype == KJIT_BF16};
  params.out.data = g->args.dout.data;
  for (int axis = 0; axis < 4; axis++) {
    params.out.stride[axis] = place.stride[axis];
    params.shape[axis] = place.stride[axis] == 0 ? 1 : place.shape[axis];
  }
  return check_fill_normal(g->data->kernels, &params, error);
}

static kjit_status place_rows(struct gradients *g, struct card_buffer *memory, kjit_tensor *tensor, kjit_error *error) {
  const size_t bytes = row_count(&g->data->problem) * sizeof(float) + 2 * GUARD_BYTES;
  const kjit_status status = card_buffer_create(g->data->kernels->card, memory, bytes, error);
  *tensor = g->data->args.lse;
  tensor->data = (void *)(uintptr_t)(memory->address + GUARD_BYTES);
  return status;
}

/* Fill dLSE with numbers between -1 and 1. */
static kjit_status fill_dlse(const struct gradients *g, kjit_error *error) {
  const size_t rows = row_count(&g->data->problem);
  float *values = malloc(rows * sizeof *values);
  if (!values) return card_fail(error, KJIT_ERR_NO_MEMORY, "no memory for %zu rows of dlse", rows);
  uint64_t state = g->choices.seed;
  for (size_t i = 0; i < rows; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    values[i] = (float)((double)(state >> 40) * 0x1p-23 - 1.0);
  }
  const kjit_status status =
      card_write(g->data->kernels->card, g->dlse.address + GUARD_BYTES, values, rows * sizeof *values, error);
  free(values);
  return status;
}

kjit_status gradients_create(struct gradients *g, const struct attention_data *data,
                             const struct gradient_choices *choices, kjit_error *error) {
  *g = (struct gradients){.data = data, .choices = *choices, .args = kjit_attention_backward_args_default()};
  g->args.q = data->args.q;
  g->args.k = data->args.k;
  g->args.v = data->args.v;
  g->args.o = data->args.o;
  g->args.lse = data->args.lse;
  g->args.scale = data->args.scale;
  g->args.flags = data->args.flags;
  kjit_status status = KJIT_OK;
  if (!data->args.lse.data) return card_fail(error, KJIT_ERR_INVALID_ARG, "the backward call needs lse");
  for (enum gradient i = GRADIENT_Q; i < GRADIENT_COUNT && status == KJIT_OK; i++)
    status = place_gradient(g, i, error);
  if (status == KJIT_OK) status = place_dout(g, error);
  if (status == KJIT_OK) status = place_rows(g, &g->delta, &g->args.delta, error);
  if (status == KJIT_OK && choices->dlse) status = place_rows(g, &g->dlse, &g->args.dlse, error);
  if (status == KJIT_OK && choices->dlse) status = fill_dlse(g, error);
  if (status == KJIT_OK) status = gradients_poison(g, data->kernels->card->stream, error);
  if (status != KJIT_OK) gradients_destroy(g);
  return status;
}

void gradients_destroy(struct gradients *g) {
  if (g->data) {
    const struct card *card = g->data->kernels->card;
    for (int i = 0; i < GRADIENT_COUNT; i++) {
      card_buffer_destroy(card, &g->memory[i]);
      card_buffer_destroy(card, &g->reference64[i]);
      card_buffer_destroy(card, &g->reference16[i]);
    }
    card_buffer_destroy(card, &g->dout);
    card_buffer_destroy(card, &g->dlse);
    card_buffer_destroy(card, &g->delta);
  }
  *g = (struct gradients){0};
}

kjit_status gradients_poison(const struct gradients *g, CUstream stream, kjit_error *error) {
  const struct card *card = g->data->kernels->card;
  kjit_status status = card_poison(card, g->delta, stream, error);
  for (int i = 0; i < GRADIENT_COUNT && status == KJIT_OK; i++) {
    if (g->memory[i].address) status = card_poison(card, g->memory[i], stream, error);
  }
  return status;
}

/* ---- References ---- */

static kjit_status get_kernel(const struct check_kernels *kernels, const char *variant, kjit_kernel **out,
                              kjit_error *error) {
  const kjit_source headers[] = {check_source("element.cuh"), check_source("params.h")};
  const kjit_define define = {"REFERENCE_16", variant};
  kjit_build_request request = kjit_build_request_default();
  request.entry = "attention_gradients";
  request.source = check_source("attention_gradients.cu");
  request.headers = headers;
  request.header_count = sizeof headers / sizeof *headers;
  request.defines = &define;
  request.define_count = 1;
  return kjit_kernel_get(kernels->runtime, &request, out, error);
}

static struct check_view view_of(const kjit_tensor *tensor) {
  struct check_view view = {.data = tensor->data};
  for (int axis = 0; axis < 4; axis++)
    view.stride[axis] = tensor->stride[axis];
  return view;
}

static kjit_status launch(const struct gradients *g, kjit_kernel *kernel, struct attention_gradients_params *params,
                          int stage, kjit_error *error) {
  const struct trial_problem *p = &g->data->problem;
  const bool queries = stage < 2;
  kjit_launch shape = kjit_launch_default();
  params->stage = stage;
  shape.grid[0] = (uint32_t)(queries ? p->asked.seq_q : p->asked.seq_kv);
  shape.grid[1] = (uint32_t)(queries ? p->asked.heads_q : problem_heads_kv(p));
  shape.grid[2] = (uint32_t)p->asked.batch;
  shape.block[0] = THREADS;
  shape.dynamic_shared_bytes = THREADS * sizeof(double);
  const kjit_arg arg = {params, sizeof *params};
  return kjit_kernel_launch(kernel, &shape, &arg, 1, g->data->kernels->card->stream, error);
}

/* One variant: P and dS, then the gradients. */
static kjit_status run_variant(const struct gradients *g, const char *variant, struct card_buffer pairs[2],
                               const struct card_buffer out[GRADIENT_COUNT], kjit_error *error) {
  const struct trial_problem *p = &g->data->problem;
  kjit_kernel *kernel = NULL;
  struct attention_gradients_params params = {.q = view_of(&g->args.q),
                                              .k = view_of(&g->args.k),
                                              .v = view_of(&g->args.v),
                                              .dout = view_of(&g->args.dout),
                                              .dlse = g->args.dlse.data,
                                              .probabilities = (void *)(uintptr_t)pairs[0].address,
                                              .derivatives = (void *)(uintptr_t)pairs[1].address,
                                              .scale = problem_scale(p),
                                              .heads = (int)p->asked.heads_q,
                                              .heads_per_kv = (int)(p->asked.heads_q / problem_heads_kv(p)),
                                              .seq_q = (int)p->asked.seq_q,
                                              .seq_kv = (int)p->asked.seq_kv,
                                              .head_dim = (int)p->asked.head_dim,
                                              .head_dim_v = (int)problem_head_dim_v(p),
                                              .causal = problem_is_causal(p),
                                              .is_bf16 = p->asked.dtype == KJIT_BF16};
  kjit_status status = get_kernel(g->data->kernels, variant, &kernel, error);
  if (status == KJIT_OK) status = launch(g, kernel, &params, 0, error);
  for (int i = 0; i < GRADIENT_COUNT && status == KJIT_OK; i++) {
    params.out = (void *)(uintptr_t)out[i].address;
    status = launch(g, kernel, &params, i + 1, error);
  }
  kjit_kernel_release(kernel);
  return status;
}

kjit_status gradients_reference(struct gradients *g, kjit_error *error) {
  const struct trial_problem *p = &g->data->problem;
  const struct card *card = g->data->kernels->card;
  const size_t pair_count = row_count(p) * (size_t)p->asked.seq_kv;
  struct card_buffer pairs[2] = {{0}, {0}};
  kjit_status status = KJIT_OK;
  if ((double)pair_count * sizeof(double) > MOST_PAIR_BYTES)
    return card_fail(error, KJIT_ERR_UNSUPPORTED, "gradients: %zu pairs of queries and keys are too many to be checked",
                     pair_count);
  for (enum gradient i = GRADIENT_Q; i < GRADIENT_COUNT && status == KJIT_OK; i++) {
    const size_t elements = (size_t)element_count(g, i);
    status = card_buffer_create(card, &g->reference64[i], elements * sizeof(double), error);
    if (status == KJIT_OK) status = card_buffer_create(card, &g->reference16[i], elements * ELEMENT_BYTES, error);
  }
  for (int i = 0; i < 2 && status == KJIT_OK; i++)
    status = card_buffer_create(card, &pairs[i], pair_count * sizeof(double), error);
  if (status == KJIT_OK) status = run_variant(g, "0", pairs, g->reference64, error);
  if (status == KJIT_OK) status = run_variant(g, "1", pairs, g->reference16, error);
  if (status == KJIT_OK) status = card_synchronize(card, card->stream, error);
  card_buffer_destroy(card, &pairs[0]);
  card_buffer_destroy(card, &pairs[1]);
  g->has_reference = status == KJIT_OK;
  return status;
}

/* ---- The judgement ---- */

static double float_of_bits(uint64_t bits) {
  const uint32_t word = (uint32_t)bits;
  float value;
  memcpy(&value, &word, sizeof value);
  return (double)value;
}

static kjit_status compare(const struct gradients *g, enum gradient which, struct gradient_verdict *v,
                           kjit_error *error) {
  struct gradients copy = *g;
  const struct tensor_place place = place_of(g, which);
  struct attention_compare_params params = {.out = view_of(argument(&copy, which)),
                                            .ref = (const double *)(uintptr_t)g->reference64[which].address,
                                            .ref16 = (const unsigned short *)(uintptr_t)g->reference16[which].address,
                                            .is_bf16 = g->data->problem.asked.dtype == KJIT_BF16};
  for (int axis = 0; axis < 4; axis++)
    params.shape[axis] = place.shape[axis];
  struct attention_compare_result result = {0};
  const kjit_status status = check_compare(g->data->kernels, params, &result, error);
  v->error = float_of_bits(result.worst >> 32);
  v->error16 = float_of_bits(result.error16);
  v->largest = float_of_bits(result.largest);
  v->not_finite = result.not_finite;
  const double at = v->largest > 0.3 ? v->largest : 0.3;
  v->bound = 2 * v->error16 + half_rounding_error(g->data->problem.asked.dtype, at);
  /* A broken reference would let anything pass: rounding four intermediate values to 16 bits changes a gradient by some
   * roundings of the largest, not by more than a sixteenth of it. */
  v->reference_is_sane = v->error16 <= v->largest / 16 + 32 * half_rounding_error(g->data->problem.asked.dtype, at);
  return status;
}

/* Words of an allocation that lost the pattern beyond those of the gradients in it; of dq's, when all are packed. */
static kjit_status count_stray(const struct gradients *g, enum gradient which, int64_t *stray, kjit_error *error) {
  struct census_result census = {0};
  int64_t written = 0;
  if (!g->memory[which].address) return KJIT_OK;
  const kjit_status status = check_census(g->data->kernels, g->memory[which], (int)ELEMENT_BYTES, &census, error);
  for (enum gradient i = GRADIENT_Q; i < GRADIENT_COUNT; i++) {
    if (is_wanted(g, i) && place_of(g, i).owner == tensor_of[which]) written += element_count(g, i);
  }
  *stray = (int64_t)(g->memory[which].bytes / ELEMENT_BYTES) - (int64_t)census.poisoned - written;
  return status;
}

kjit_status gradients_judge(const struct gradients *g, struct gradients_verdict *verdict, kjit_error *error) {
  struct attention_traces traces;
  *verdict = (struct gradients_verdict){.passed = true};
  kjit_status status = attention_data_inspect(g->data, &traces, error);
  verdict->inputs_changed = traces.inputs_changed;
  for (enum gradient i = GRADIENT_Q; i < GRADIENT_COUNT && status == KJIT_OK; i++) {
    struct gradient_verdict *v = &verdict->each[i];
    v->reference_is_sane = true;
    if (is_wanted(g, i)) status = compare(g, i, v, error);
    if (status == KJIT_OK) status = count_stray(g, i, &v->stray, error);
    v->passed = v->reference_is_sane && v->error <= v->bound && v->not_finite == 0 && v->stray == 0;
    verdict->passed = verdict->passed && v->passed;
  }
  verdict->passed = status == KJIT_OK && verdict->passed && !verdict->inputs_changed;
  return status;
}

void gradients_verdict_print(const struct gradients_verdict *verdict, char text[GRADIENTS_VERDICT_TEXT_MAX]) {
  const size_t room = GRADIENTS_VERDICT_TEXT_MAX;
  size_t used = 0;
  for (int i = 0; i < GRADIENT_COUNT; i++) {
    const struct gradient_verdict *v = &verdict->each[i];
    if (v->bound <= 0 && v->passed) continue; /* not wanted */
    used += (size_t)snprintf(text + used, room - used, "%s error %.3g, allowed %.3g (16-bit reference %.3g of %.3g)%s",
                             names[i], v->error, v->bound, v->error16, v->largest, v->passed ? "; " : " FAILED");
    if (v->not_finite)
      used += (size_t)snprintf(text + used, room - used, ", %" PRIu64 " elements not finite", v->not_finite);
    if (!v->reference_is_sane)
      used += (size_t)snprintf(text + used, room - used, ", the reference itself cannot be right");
    if (v->stray) used += (size_t)snprintf(text + used, room - used, ", words written outside: %" PRId64, v->stray);
    if (!v->passed) used += (size_t)snprintf(text + used, room - used, "; ");
  }
  if (verdict->inputs_changed) used += (size_t)snprintf(text + used, room - used, "the inputs were changed; ");
  snprintf(text + used, room - used, "%s", verdict->passed ? "passed" : "FAILED");
}

kjit_status gradients_digest(const struct gradients *g, uint64_t *digest, kjit_error *error) {
  kjit_status status = KJIT_OK;
  *digest = 0;
  for (int i = 0; i < GRADIENT_COUNT && status == KJIT_OK; i++) {
    struct census_result census = {0};
    if (!g->memory[i].address) continue;
    status = check_census(g->data->kernels, g->memory[i], (int)ELEMENT_BYTES, &census, error);
    *digest = *digest * 0x9E3779B97F4A7C15u + census.digest;
  }
  return status;
}
