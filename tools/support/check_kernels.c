/* The CUDA kernels that check others: attention in float64 and as eager PyTorch computes it, the comparison, random
 * numbers, and the count of words that still hold a pattern.
 *
 * They are compiled at run time by kjit's own public API from sources that the program carries, as a user's kernels
 * would be. Their launches are enqueued on the card's stream; check_compare() and check_census() wait for their
 * result, which is written to one small buffer, so only one of them may be under way. */
#include "support/check_kernels.h"

#include <stdlib.h>

#include "support/check_sources.h"

/* Kernels that take any grid get 8 blocks of 256 threads for each SM: enough to fill it, and few enough that the
 * atomics at their ends cost nothing. */
#define FREE_BLOCKS 8
#define FREE_BLOCK  256

#define REFERENCE_ROWS    32 /* kRows and kKeys of attention_reference.cu */
#define REFERENCE_THREADS 256

static kjit_status get_kernel(const struct check_kernels *kernels, const char *file, const char *entry,
                              const kjit_define *define, kjit_kernel **out, kjit_error *error) {
  const kjit_source headers[] = {check_source("element.cuh"), check_source("params.h")};
  kjit_build_request request = kjit_build_request_default();
  request.entry = entry;
  request.source = check_source(file);
  request.headers = headers;
  request.header_count = sizeof headers / sizeof *headers;
  request.defines = define;
  request.define_count = define ? 1 : 0;
  return kjit_kernel_get(kernels->runtime, &request, out, error);
}

kjit_status check_kernels_create(struct check_kernels *kernels, kjit_runtime *runtime, const struct card *card,
                                 kjit_error *error) {
  *kernels = (struct check_kernels){.runtime = runtime, .card = card};
  static const kjit_define exact = {"REFERENCE_16", "0"}, eager = {"REFERENCE_16", "1"};
  const struct {
    const char *file, *entry;
    const kjit_define *define;
    kjit_kernel **out;
  } table[] = {
      {"attention_reference.cu", "attention_reference", &exact, &kernels->reference64},
      {"attention_reference.cu", "attention_reference", &eager, &kernels->reference16},
      {"attention_compare.cu", "attention_compare", NULL, &kernels->compare},
      {"fill_normal.cu", "fill_normal", NULL, &kernels->fill},
      {"census.cu", "census", NULL, &kernels->census},
  };
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < sizeof table / sizeof *table && status == KJIT_OK; i++)
    status = get_kernel(kernels, table[i].file, table[i].entry, table[i].define, table[i].out, error);
  if (status == KJIT_OK)
    status = card_buffer_create(card, &kernels->result, sizeof(struct attention_compare_result), error);
  if (status != KJIT_OK) check_kernels_destroy(kernels);
  return status;
}

void check_kernels_destroy(struct check_kernels *kernels) {
  kjit_kernel_release(kernels->reference64);
  kjit_kernel_release(kernels->reference16);
  kjit_kernel_release(kernels->compare);
  kjit_kernel_release(kernels->fill);
  kjit_kernel_release(kernels->census);
  if (kernels->card) card_buffer_destroy(kernels->card, &kernels->result);
  *kernels = (struct check_kernels){0};
}

/* Launch a kernel that takes any grid. */
static kjit_status launch_free(const struct check_kernels *kernels, kjit_kernel *kernel, const void *params,
                               size_t bytes, kjit_error *error) {
  kjit_launch launch = kjit_launch_default();
  launch.grid[0] = FREE_BLOCKS * (uint32_t)kernels->card->multiprocessors;
  launch.block[0] = FREE_BLOCK;
  const kjit_arg arg = {params, bytes};
  return kjit_kernel_launch(kernel, &launch, &arg, 1, kernels->card->stream, error);
}

kjit_status check_fill_normal(const struct check_kernels *kernels, const struct fill_normal_params *params,
                              kjit_error *error) {
  return launch_free(kernels, kernels->fill, params, sizeof *params, error);
}

kjit_status check_reference(const struct check_kernels *kernels, kjit_kernel *variant, int64_t batch,
                            const struct attention_reference_params *params, kjit_error *error) {
  const size_t number_bytes = variant == kernels->reference64 ? sizeof(double) : sizeof(float);
  const int columns = params->head_dim > params->head_dim_v ? params->head_dim : params->head_dim_v;
  const size_t tile_bytes = REFERENCE_ROWS * ((size_t)columns + 1) * sizeof(float);
  kjit_launch launch = kjit_launch_default();
  launch.grid[0] = ((uint32_t)params->seq_q + REFERENCE_ROWS - 1) / REFERENCE_ROWS;
  launch.grid[1] = (uint32_t)params->heads;
  launch.grid[2] = (uint32_t)batch;
  launch.block[0] = REFERENCE_THREADS;
  launch.dynamic_shared_bytes = (uint32_t)(2 * tile_bytes + REFERENCE_ROWS * (REFERENCE_ROWS + 1) * number_bytes);
  const kjit_arg arg = {params, sizeof *params};
  return kjit_kernel_launch(variant, &launch, &arg, 1, kernels->card->stream, error);
}

static kjit_status clear_result(const struct check_kernels *kernels, kjit_error *error) {
  const struct card *card = kernels->card;
  return card_result(card, card->api.set16(kernels->result.address, 0, kernels->result.bytes / 2, card->stream),
                     "cuMemsetD16Async", error);
}

kjit_status check_compare(const struct check_kernels *kernels, struct attention_compare_params params,
                          struct attention_compare_result *result, kjit_error *error) {
  params.result = (struct attention_compare_result *)(uintptr_t)kernels->result.address;
  kjit_status status = clear_result(kernels, error);
  if (status == KJIT_OK) status = launch_free(kernels, kernels->compare, &params, sizeof params, error);
  if (status == KJIT_OK) status = card_read(kernels->card, result, kernels->result.address, sizeof *result, error);
  return status;
}

kjit_status check_census(const struct check_kernels *kernels, struct card_buffer memory, int word_bytes,
                         struct census_result *result, kjit_error *error) {
  const struct census_params params = {
      .memory = (const void *)(uintptr_t)memory.address,
      .words = memory.bytes / (size_t)word_bytes,
      .result = (struct census_result *)(uintptr_t)kernels->result.address,
      .poison = word_bytes == 2 ? CARD_POISON : CARD_POISON << 16 | CARD_POISON,
      .word_bytes = word_bytes,
  };
  kjit_status status = clear_result(kernels, error);
  if (status == KJIT_OK) status = launch_free(kernels, kernels->census, &params, sizeof params, error);
  if (status == KJIT_OK) status = card_read(kernels->card, result, kernels->result.address, sizeof *result, error);
  return status;
}
