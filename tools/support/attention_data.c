/* The tensors of an attention problem on the GPU.
 *
 * Each allocation has a guard zone on either side. First everything is filled with a NaN pattern, then the inputs
 * with normally distributed numbers from the problem's seed. So a kernel that reads outside of its inputs computes
 * NaN, and a kernel that writes outside of its output, or leaves a part of it out, changes the number of words that
 * still hold the pattern. Digests of the inputs tell whether a kernel has changed them. Everything runs in order on
 * the card's stream. */
#include "support/attention_data.h"

#include <string.h>

/* The guard zone on each side of an allocation is larger than what one tile could overrun at the sizes that tests use.
 */
#define GUARD_BYTES   ((size_t)1 << 20)
#define ELEMENT_BYTES sizeof(uint16_t)

static kjit_tensor *argument(kjit_attention_args *args, enum problem_tensor tensor) {
  kjit_tensor *const table[TENSOR_COUNT] = {&args->q, &args->k, &args->v, &args->o};
  return table[tensor];
}

struct check_view attention_data_view(const struct attention_data *data, enum problem_tensor tensor) {
  kjit_attention_args args = data->args;
  const kjit_tensor *t = argument(&args, tensor);
  struct check_view view = {.data = t->data};
  for (int axis = 0; axis < 4; axis++)
    view.stride[axis] = t->stride[axis];
  return view;
}

/* Allocate the tensor's memory, if it does not share another's, fill it with the pattern, and describe it in the
 * arguments.
 */
static kjit_status place_tensor(struct attention_data *data, enum problem_tensor tensor, kjit_error *error) {
  const struct card *card = data->kernels->card;
  const struct tensor_place place = problem_place(&data->problem, tensor);
  kjit_status status = KJIT_OK;
  if (place.owner == tensor) {
    const size_t bytes = (size_t)place.span * ELEMENT_BYTES + 2 * GUARD_BYTES;
    status = card_buffer_create(card, &data->memory[tensor], bytes, error);
    if (status == KJIT_OK) status = card_poison(card, data->memory[tensor], card->stream, error);
  }
  kjit_tensor *t = argument(&data->args, tensor);
  const CUdeviceptr address = data->memory[place.owner].address + GUARD_BYTES + (size_t)place.first * ELEMENT_BYTES;
  *t = (kjit_tensor){
      .data = (void *)(uintptr_t)address, .dtype = data->problem.asked.dtype, .device = card->ordinal, .rank = 4};
  memcpy(t->shape, place.shape, sizeof t->shape);
  memcpy(t->stride, place.stride, sizeof t->stride);
  return status;
}

static kjit_status place_lse(struct attention_data *data, kjit_error *error) {
  const struct trial_problem *p = &data->problem;
  const struct card *card = data->kernels->card;
  if (!p->lse) return KJIT_OK;
  const size_t bytes = (size_t)(p->asked.batch * p->asked.heads_q * p->asked.seq_q) * sizeof(float) + 2 * GUARD_BYTES;
  const kjit_status status = card_buffer_create(card, &data->lse_memory, bytes, error);
  if (status != KJIT_OK) return status;
  data->args.lse = (kjit_tensor){.data = (void *)(uintptr_t)(data->lse_memory.address + GUARD_BYTES),
                                 .dtype = KJIT_FP32,
                                 .device = card->ordinal,
                                 .rank = 3,
                                 .shape = {p->asked.batch, p->asked.heads_q, p->asked.seq_q},
                                 .stride = {p->asked.heads_q * p->asked.seq_q, p->asked.seq_q, 1}};
  return card_poison(card, data->lse_memory, card->stream, error);
}

static kjit_status fill_tensor(const struct attention_data *data, enum problem_tensor tensor, kjit_error *error) {
  const struct tensor_place place = problem_place(&data->problem, tensor);
  struct fill_normal_params params = {.out = attention_data_view(data, tensor),
                                      .seed = data->problem.seed + ((uint64_t)tensor << 56),
                                      .is_bf16 = data->problem.asked.dtype == KJIT_BF16};
  for (int axis = 0; axis < 4; axis++)
    params.shape[axis] = place.stride[axis] == 0 ? 1 : place.shape[axis];
  return check_fill_normal(data->kernels, &params, error);
}

static kjit_status digest_input(struct attention_data *data, enum problem_tensor tensor, kjit_error *error) {
  if (!data->memory[tensor].address) return KJIT_OK;
  struct census_result census = {0};
  const kjit_status status = check_census(data->kernels, data->memory[tensor], (int)ELEMENT_BYTES, &census, error);
  data->input_digest[tensor] = census.digest;
  return status;
}

kjit_status attention_data_create(struct attention_data *data, const struct check_kernels *kernels,
                                  const struct trial_problem *problem, kjit_error *error) {
  *data = (struct attention_data){.kernels = kernels, .problem = *problem, .args = kjit_attention_args_default()};
  data->args.scale = (float)problem->scale;
  data->args.flags = problem->asked.flags;
  kjit_status status = problem_check(problem, error);
  for (enum problem_tensor t = TENSOR_Q; t < TENSOR_COUNT && status == KJIT_OK; t++)
    status = place_tensor(data, t, error);
  if (status == KJIT_OK) status = place_lse(data, error);
  for (enum problem_tensor t = TENSOR_Q; t < TENSOR_O && status == KJIT_OK; t++)
    status = fill_tensor(data, t, error);
  for (enum problem_tensor t = TENSOR_Q; t < TENSOR_O && status == KJIT_OK; t++)
    status = digest_input(data, t, error);
  if (status != KJIT_OK) attention_data_destroy(data);
  return status;
}

void attention_data_destroy(struct attention_data *data) {
  if (data->kernels) {
    for (int t = 0; t < TENSOR_COUNT; t++)
      card_buffer_destroy(data->kernels->card, &data->memory[t]);
    card_buffer_destroy(data->kernels->card, &data->lse_memory);
  }
  *data = (struct attention_data){0};
}

kjit_status attention_data_poison(const struct attention_data *data, CUstream stream, kjit_error *error) {
  const struct card *card = data->kernels->card;
  const kjit_status status = card_poison(card, data->memory[TENSOR_O], stream, error);
  if (status != KJIT_OK || !data->lse_memory.address) return status;
  return card_poison(card, data->lse_memory, stream, error);
}

/* How many more words lost the pattern than the output has elements; negative when elements were not written. */
static kjit_status count_stray(const struct attention_data *data, struct card_buffer memory, int word_bytes,
                               int64_t elements, int64_t *stray, kjit_error *error) {
  struct census_result census = {0};
  *stray = 0;
  if (!memory.address) return KJIT_OK;
  const kjit_status status = check_census(data->kernels, memory, word_bytes, &census, error);
  const int64_t words = (int64_t)(memory.bytes / (size_t)word_bytes);
  if (status == KJIT_OK) *stray = words - (int64_t)census.poisoned - elements;
  return status;
}

kjit_status attention_data_inspect(const struct attention_data *data, struct attention_traces *traces,
                                   kjit_error *error) {
  const struct trial_problem *p = &data->problem;
  const int64_t rows = p->asked.batch * p->asked.heads_q * p->asked.seq_q;
  *traces = (struct attention_traces){0};
  struct attention_data now = *data;
  kjit_status status = KJIT_OK;
  for (enum problem_tensor t = TENSOR_Q; t < TENSOR_O && status == KJIT_OK; t++) {
    status = digest_input(&now, t, error);
    if (now.input_digest[t] != data->input_digest[t]) traces->inputs_changed = true;
  }
  if (status == KJIT_OK)
    status = count_stray(data, data->memory[TENSOR_O], (int)ELEMENT_BYTES, rows * problem_head_dim_v(p),
                         &traces->o_stray, error);
  if (status == KJIT_OK)
    status = count_stray(data, data->lse_memory, (int)sizeof(float), rows, &traces->lse_stray, error);
  return status;
}
