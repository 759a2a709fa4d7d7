/* Timing work on the GPU by two events around it. Before each run a buffer of twice the size of the L2 cache may be
 * written, so that the work finds a cold cache; that write also keeps the GPU busy while the host enqueues the work,
 * so that launching is not part of the time. A timer is used by one thread, on the card's stream. */
#include "support/timer.h"

#define LEAST_FLUSH_BYTES ((size_t)64 << 20) /* also long enough to hide the launch of what follows it */

kjit_status timer_create(struct timer *timer, const struct card *card, bool flush_l2, kjit_error *error) {
  *timer = (struct timer){.card = card};
  const size_t flush_bytes = 2 * card->l2_bytes > LEAST_FLUSH_BYTES ? 2 * card->l2_bytes : LEAST_FLUSH_BYTES;
  kjit_status status =
      card_result(card, card->api.event_create(&timer->begin, CU_EVENT_DEFAULT), "cuEventCreate", error);
  if (status == KJIT_OK)
    status = card_result(card, card->api.event_create(&timer->end, CU_EVENT_DEFAULT), "cuEventCreate", error);
  if (status == KJIT_OK && flush_l2) status = card_buffer_create(card, &timer->flush, flush_bytes, error);
  if (status != KJIT_OK) timer_destroy(timer);
  return status;
}

void timer_destroy(struct timer *timer) {
  if (timer->begin) timer->card->api.event_destroy(timer->begin);
  if (timer->end) timer->card->api.event_destroy(timer->end);
  if (timer->card) card_buffer_destroy(timer->card, &timer->flush);
  *timer = (struct timer){0};
}

kjit_status timer_run(const struct timer *timer, card_work work, void *user, double *milliseconds, kjit_error *error) {
  const struct card *card = timer->card;
  float elapsed = 0;
  *milliseconds = 0;
  kjit_status status = KJIT_OK;
  if (timer->flush.address) status = card_poison(card, timer->flush, card->stream, error);
  if (status == KJIT_OK)
    status = card_result(card, card->api.event_record(timer->begin, card->stream), "cuEventRecord", error);
  if (status == KJIT_OK) status = work(user, card->stream, error);
  if (status == KJIT_OK)
    status = card_result(card, card->api.event_record(timer->end, card->stream), "cuEventRecord", error);
  if (status == KJIT_OK)
    status = card_result(card, card->api.event_synchronize(timer->end), "waiting for the GPU", error);
  if (status == KJIT_OK)
    status =
        card_result(card, card->api.event_elapsed(&elapsed, timer->begin, timer->end), "cuEventElapsedTime", error);
  if (status == KJIT_OK) *milliseconds = (double)elapsed;
  return status;
}
