/* Ways to put the same work on a stream, and what each costs the host: timed in turns, beside the first of them. */
#ifndef KJIT_BENCH_TURNS_H
#define KJIT_BENCH_TURNS_H

#include "output.h"
#include "support/card.h"

#define TURNS_MOST_VARIANTS 32
#define TURNS_MOST_ROUNDS   10000

struct turns_way {
  const char *name;
  card_work work;
};

struct turns {
  struct turns_variant {
    const char *subject; /* what the work is */
    struct turns_way way;
    void *user;
    size_t base; /* the variant that it is compared with */
  } variants[TURNS_MOST_VARIANTS];
  size_t count;
};

/* The first way is the one that the others are compared with. Everything given must outlive `turns`. */
void turns_add(struct turns *turns, const char *subject, const struct turns_way *ways, size_t count, void *user);

/* Time and print: microseconds a call, medians and differences from the first way. What is timed is enqueueing a batch
 * of calls; the GPU is waited for outside of it. */
kjit_status turns_run(const struct turns *turns, const struct card *card, size_t rounds, const struct output *output,
                      kjit_error *error);

#endif
