/* The list of kjit's own families that compute attention, in the order in which the planner asks them. Constant data.
 */
#include "attention/attention_family.h"

#include <string.h>

#include "attention/backward/backward_family.h"
#include "attention/decode/decode_call.h"
#include "attention/flash/flash_call.h"
#include "attention/serving/serving_family.h"
#include "attention/serving_sm90/one_part_call.h"
#include "attention/short/short_call.h"
#include "attention/sm90/sm90_call.h"

const struct attention_family *const attention_families[ATTENTION_FAMILY_COUNT] = {
    &one_part_attention, &decode_attention, &short_attention, &sm90_attention, &flash_attention};

const struct attention_family *attention_family_of(const kjit_family *family) {
  for (size_t i = 0; i < ATTENTION_FAMILY_COUNT; i++) {
    if (attention_families[i]->family == family) return attention_families[i];
  }
  return NULL;
}

const struct attention_family *attention_family_find(const char *name, size_t bytes) {
  for (size_t i = 0; i < ATTENTION_FAMILY_COUNT; i++) {
    const char *known = attention_families[i]->family->table.family;
    if (strlen(known) == bytes && !memcmp(known, name, bytes)) return attention_families[i];
  }
  return NULL;
}

const kjit_family *attention_family_front(const struct attention_family *family, const int32_t *values,
                                          int32_t *front_values) {
  return family && family->front ? family->front(values, front_values) : NULL;
}

const kjit_family *kjit_family_find(const char *name) {
  const struct attention_family *found = name ? attention_family_find(name, strlen(name)) : NULL;
  if (found) return found->family;
  for (size_t i = 0; i < SERVING_FAMILY_COUNT && name; i++) {
    if (!strcmp(serving_families[i]->family->table.family, name)) return serving_families[i]->family;
  }
  if (name && !strcmp(name, attention_padding_family.table.family)) return &attention_padding_family;
  return name ? backward_family_find(name) : NULL;
}
