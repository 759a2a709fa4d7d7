/* The list of kjit's own families that compute attention's gradients, in the order in which the planner asks them.
 * Constant data. */
#include <string.h>

#include "attention/backward/flash_backward.h"
#include "attention/backward/sm90_backward.h"

const struct backward_family *const backward_families[BACKWARD_FAMILY_COUNT] = {&sm90_backward, &flash_backward};

const struct backward_family *backward_family_of(const kjit_family *family) {
  for (size_t i = 0; i < BACKWARD_FAMILY_COUNT; i++) {
    if (backward_families[i]->family == family) return backward_families[i];
  }
  return NULL;
}

const kjit_family *backward_family_find(const char *name) {
  for (size_t i = 0; i < BACKWARD_FAMILY_COUNT; i++) {
    if (strcmp(backward_families[i]->family->table.family, name) == 0) return backward_families[i]->family;
  }
  return NULL;
}
