/* Configs of attention_decode_sm90: their fields, the numbers that follow from them, and which are legal. Pure. */
#ifndef KJIT_ATTENTION_DECODE_DECODE_CONFIG_H
#define KJIT_ATTENTION_DECODE_DECODE_CONFIG_H

#include <stdbool.h>

#include <kjit/attention_decode_sm90.h>

#include "attention_decode_sm90/layout.h"
#include "family/family.h"

extern const kjit_family decode_family;

/* The family's values as a struct. */
static inline const kjit_attention_decode_sm90_config *decode_config_view(const int32_t *values) {
  return (const kjit_attention_decode_sm90_config *)values;
}

/* Numbers that follow from a legal config, or from one whose only faults are those of decode_fits(). */
uint32_t decode_shared_bytes(const kjit_attention_decode_sm90_config *config); /* dynamic, with room to align it */
uint32_t decode_registers(const kjit_attention_decode_sm90_config *config);    /* of a thread for Q, S, P and O */

/* The two rules that depend on the tile: a thread's registers, a block's shared memory. */
bool decode_fits(const kjit_attention_decode_sm90_config *config);

/* Check every rule. KJIT_ERR_INVALID_CONFIG: "<field> is <value>: must be <rule>". */
kjit_status decode_check(const kjit_attention_decode_sm90_config *config, kjit_error *error);

#endif
