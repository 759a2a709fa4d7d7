/* The planner: chooses family and config for a problem on a card, by a tuned table or by rules. Pure; any thread. */
#ifndef KJIT_ATTENTION_ATTENTION_CHOOSE_H
#define KJIT_ATTENTION_ATTENTION_CHOOSE_H

#include <stdbool.h>

#include "attention/attention_family.h"

struct attention_choice {
  const struct attention_family *family;
  int32_t values[ATTENTION_FIELDS_MAX];
  uint32_t decided_by; /* a kjit_decided_by */
};

/* A tuned table, which is asked before the rules. It is behind a function, so that the planner does not depend on
 * tables. `find` is NULL when nothing was measured. */
struct attention_measured {
  bool (*find)(void *table, const kjit_attention_problem *problem, struct attention_choice *out);
  void *table;
};

/* Choose for a problem whose defaults are filled in. KJIT_ERR_UNSUPPORTED says why no family computes it. */
kjit_status attention_choose(const kjit_attention_problem *problem, const struct family_place *place,
                             const struct attention_measured *measured, bool is_variant, struct attention_choice *out,
                             kjit_error *error);

#endif
