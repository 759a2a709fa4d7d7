/* Which configs are legal, and where. */
#ifndef KJIT_ATTENTION_FLASH_FLASH_RULES_H
#define KJIT_ATTENTION_FLASH_FLASH_RULES_H

#include <kjit/flash_forward.h>

#include "jit/request/target.h"

/* Every rule that needs no architecture. KJIT_ERR_INVALID_CONFIG: "<field> is <value>: <rule>". */
kjit_status flash_rules_check_variant(const kjit_flash_variant *variant, kjit_error *error);

/* Can a legal kernel run where `arch` is the architecture and `shared_per_block` its bytes of shared memory after
 * opting in? KJIT_ERR_UNSUPPORTED otherwise; KJIT_ERR_INVALID_ARG for a name that is no architecture's. */
kjit_status flash_rules_check_variant_place(const kjit_flash_variant *variant, const char *arch,
                                            uint32_t shared_per_block, kjit_error *error);

/* The same of a config's plain kernel. */
kjit_status flash_rules_check(const kjit_flash_config *config, kjit_error *error);
kjit_status flash_rules_check_place(const kjit_flash_config *config, const char *arch, uint32_t shared_per_block,
                                    kjit_error *error);

/* The limits of `arch`. KJIT_ERR_UNSUPPORTED for an architecture that is older than sm_80 or that the table of limits
 * lacks, KJIT_ERR_INVALID_ARG for a name that is none. */
kjit_status flash_rules_limits(const char *arch, const struct target_limits **limits, kjit_error *error);

#endif
