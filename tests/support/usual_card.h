/* The cards that the planner's constants were measured on, for tests of what it chooses. */
#ifndef KJIT_TESTS_SUPPORT_USUAL_CARD_H
#define KJIT_TESTS_SUPPORT_USUAL_CARD_H

#include "attention/sm90/sm90_choose.h"

/* An H200 but for the number of its SMs. */
static inline struct sm90_card usual_card(uint32_t sm_count) {
  const struct family_figures usual = {0};
  return sm90_card_of(sm_count, &usual);
}

/* A card with an H100's memory, which is slow for so many SMs. */
static inline struct sm90_card slow_card(uint32_t sm_count) {
  const struct family_figures figures = {.memory_gb_s = 3352};
  return sm90_card_of(sm_count, &figures);
}

static inline kjit_status usual_sm90_choose(const kjit_attention_problem *problem, uint32_t sm_count,
                                            kjit_attention_sm90_config *out, kjit_error *error) {
  const struct sm90_card card = usual_card(sm_count);
  return sm90_choose(problem, &card, out, error);
}

#endif
