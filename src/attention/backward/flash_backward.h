/* flash_backward as a family: its configs, and the numbers that follow from them. Pure. */
#ifndef KJIT_ATTENTION_BACKWARD_FLASH_BACKWARD_H
#define KJIT_ATTENTION_BACKWARD_FLASH_BACKWARD_H

#include "attention/backward/backward_family.h"

extern const kjit_family flash_backward_family;
extern const struct backward_family flash_backward;

/* The family's values as a struct. */
static inline const kjit_flash_backward_config *flash_backward_view(const int32_t *values) {
  return (const kjit_flash_backward_config *)values;
}

/* Does a legal config's block own key rows (dk, dv), not query rows (dq, delta)? */
bool flash_backward_owns_keys(const kjit_flash_backward_config *config);

/* Choose by rules; kjit_attention_backward_choose(). */
kjit_status flash_backward_choose(const struct backward_wanted *wanted, uint32_t left, const struct family_place *place,
                                  int32_t *values, kjit_error *error);

#endif
