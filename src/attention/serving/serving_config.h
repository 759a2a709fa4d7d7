/* Configs of attention_serving: their fields, the numbers that follow from them, their canonical form, and which are
 * legal. Pure. */
#ifndef KJIT_ATTENTION_SERVING_SERVING_CONFIG_H
#define KJIT_ATTENTION_SERVING_SERVING_CONFIG_H

#include <stdbool.h>

#include <kjit/attention_serving.h>

#include "family/family.h"

extern const kjit_family serving_kernel_family;

/* The family's values as a struct. */
static inline const kjit_attention_serving_config *serving_config_view(const int32_t *values) {
  return (const kjit_attention_serving_config *)values;
}

uint32_t serving_threads(const kjit_attention_serving_config *config);
uint32_t serving_shared_bytes(const kjit_attention_serving_config *config); /* dynamic, per block */

/* Bytes of a partial result: O of a tile in fp32, and each row's maximum and sum. */
size_t serving_partial_bytes(const kjit_attention_serving_config *config);

/* Check every rule. KJIT_ERR_INVALID_CONFIG: "<field> is <value>: must be <rule>". */
kjit_status serving_check(const kjit_attention_serving_config *config, kjit_error *error);

#endif
