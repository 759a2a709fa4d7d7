/* Which configs are legal, and where. */
#ifndef KJIT_ATTENTION_SM90_SM90_RULES_H
#define KJIT_ATTENTION_SM90_SM90_RULES_H

#include <kjit/attention_sm90.h>

/* The one architecture that the kernel compiles for. */
#define SM90_ARCH "sm_90a"

enum { SM90_GROUP_ROWS = 64 /* query rows of a consumer: wgmma's M */ };

/* Chunks of 64 columns, as which a tile lies in shared memory: 128-byte rows, as the swizzle needs. */
int32_t sm90_rules_chunks(int32_t columns);

/* Every rule. KJIT_ERR_INVALID_CONFIG: "<field> is <value>: must be <rule>". */
kjit_status sm90_rules_check(const kjit_attention_sm90_config *config, kjit_error *error);

/* Is `arch` the name of the kernel's architecture? KJIT_ERR_UNSUPPORTED for another's, KJIT_ERR_INVALID_ARG for a name
 * that is none. */
kjit_status sm90_rules_check_arch(const char *arch, kjit_error *error);

/* Registers that a consumer thread may hold O, S and P in. */
int32_t sm90_rules_registers(int32_t consumers);

/* Bytes of shared memory that a block may have. */
uint32_t sm90_rules_shared(void);

#endif
