/* Times several ways to put the same work on a stream. In each round every way enqueues a batch of calls, in turn, so
 * that heat and clocks meet all alike. Only the enqueueing is timed; the GPU is waited for between two batches. One
 * thread. */
#include "turns.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* Calls in a batch: few enough for the driver's queue, because a full queue makes enqueueing wait for the GPU. */
#define BATCH 100

void turns_add(struct turns *turns, const char *subject, const struct turns_way *ways, size_t count, void *user) {
  const size_t base = turns->count;
  assert(count <= TURNS_MOST_VARIANTS - base);
  for (size_t i = 0; i < count; i++)
    turns->variants[turns->count++] = (struct turns_variant){subject, ways[i], user, base};
}

/* Run one batch and return its time for each call. */
static kjit_status time_batch(const struct turns_variant *variant, const struct card *card, double *microseconds,
                              kjit_error *error) {
  kjit_status status = KJIT_OK;
  const double begin = statistics_now();
  for (int i = 0; i < BATCH && status == KJIT_OK; i++)
    status = variant->way.work(variant->user, card->stream, error);
  *microseconds = (statistics_now() - begin) * 1e6 / BATCH;
  return status == KJIT_OK ? card_synchronize(card, card->stream, error) : status;
}

/* Time all variants. The first round is not counted. `times` is [variant][round]. */
static kjit_status time_all(const struct turns *turns, const struct card *card, size_t rounds, double *times,
                            kjit_error *error) {
  kjit_status status = KJIT_OK;
  double warmup;
  for (size_t v = 0; v < turns->count && status == KJIT_OK; v++)
    status = time_batch(&turns->variants[v], card, &warmup, error);
  for (size_t round = 0; round < rounds; round++)
    for (size_t v = 0; v < turns->count && status == KJIT_OK; v++)
      status = time_batch(&turns->variants[v], card, &times[v * rounds + round], error);
  return status;
}

static void print(const struct turns *turns, size_t rounds, double *times, const struct output *output) {
  struct statistics results[TURNS_MOST_VARIANTS];
  char name[96];
  for (size_t v = 0; v < turns->count; v++) {
    const struct turns_variant *const variant = &turns->variants[v];
    results[v] = statistics_of(&times[v * rounds], rounds);
    snprintf(name, sizeof name, "%s, %s", variant->subject, variant->way.name);
    output_statistics(output, name, "us", &results[v]);
  }
  for (size_t v = 0; v < turns->count; v++) {
    const struct turns_variant *const variant = &turns->variants[v];
    snprintf(name, sizeof name, "%s, %s: more than bare", variant->subject, variant->way.name);
    if (variant->base != v) output_number(output, name, "us", results[v].median - results[variant->base].median);
  }
}

kjit_status turns_run(const struct turns *turns, const struct card *card, size_t rounds, const struct output *output,
                      kjit_error *error) {
  double *times = calloc(turns->count * rounds, sizeof *times);
  if (!times) return card_fail(error, KJIT_ERR_NO_MEMORY, "no memory for %zu times", turns->count * rounds);
  const kjit_status status = time_all(turns, card, rounds, times, error);
  if (status == KJIT_OK) print(turns, rounds, times, output);
  free(times);
  return status;
}
