/* Configs of attention_sm90: their fields, the numbers that follow from them, their canonical form, and which are
 * legal. Pure. */
#ifndef KJIT_ATTENTION_SM90_SM90_CONFIG_H
#define KJIT_ATTENTION_SM90_SM90_CONFIG_H

#include <kjit/attention_sm90.h>

#include "attention_sm90/layout.h"
#include "family/family.h"

/* The one architecture that the kernel compiles for. */
#define SM90_ARCH "sm_90a"

extern const kjit_family sm90_family;

/* The family's values as what they are. */
static inline const kjit_attention_sm90_config *sm90_config_view(const int32_t *values) {
  return (const kjit_attention_sm90_config *)values;
}

/* Chunks of SM90_CHUNK_COLUMNS columns, as which a tile lies in shared memory. */
int32_t sm90_chunks(int32_t columns);

/* Of a legal config, or one whose only faults are the two that are said below. */
uint32_t sm90_threads(const kjit_attention_sm90_config *config);
uint32_t sm90_shared_bytes(const kjit_attention_sm90_config *config); /* dynamic, per block, with room to align it */
uint32_t sm90_registers(const kjit_attention_sm90_config *config);    /* that a consumer thread holds O, S and P in */

/* The two rules that a tile of legal fields can break: registers of a consumer thread, shared memory of a block. */
_Bool sm90_fits(const kjit_attention_sm90_config *config);

/* The config of the same machine code whose fields that mean nothing are at their plain value. */
kjit_attention_sm90_config sm90_canonical(const kjit_attention_sm90_config *config);

/* Every rule. KJIT_ERR_INVALID_CONFIG: "<field> is <value>: must be <rule>". */
kjit_status sm90_check(const kjit_attention_sm90_config *config, kjit_error *error);

/* Is `arch` the name of the kernel's architecture? KJIT_ERR_UNSUPPORTED for another's, KJIT_ERR_INVALID_ARG for a name
 * that is none. */
kjit_status sm90_check_arch(const char *arch, kjit_error *error);

#endif
