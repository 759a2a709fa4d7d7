/* Configs of attention_sm90: their fields, the numbers that follow from them, their canonical form, and which are
 * legal. Pure. */
#ifndef KJIT_ATTENTION_SM90_SM90_CONFIG_H
#define KJIT_ATTENTION_SM90_SM90_CONFIG_H

#include <stdbool.h>

#include <kjit/attention_sm90.h>

#include "attention_sm90/layout.h"
#include "family/family.h"

extern const kjit_family sm90_family;

/* The family's values as a struct. */
static inline const kjit_attention_sm90_config *sm90_config_view(const int32_t *values) {
  return (const kjit_attention_sm90_config *)values;
}

/* The number of 64-column bands as which a tile of `columns` columns lies in shared memory. */
int32_t sm90_chunks(int32_t columns);

/* Four consumers are two pairs, each with a tile of its own: the consumers of a tile. */
static inline int32_t sm90_tile_consumers(const kjit_attention_sm90_config *config) {
  return SM90_TILE_CONSUMERS(config->consumers);
}

/* Numbers that follow from a legal config, or from one whose only faults are those of sm90_fits(). */
uint32_t sm90_threads(const kjit_attention_sm90_config *config);
uint32_t sm90_shared_bytes(const kjit_attention_sm90_config *config);  /* dynamic, per block, with room to align it */
uint32_t sm90_variant_bytes(const kjit_attention_sm90_config *config); /* what a variant needs beyond them */
/* Where two pairs of consumers share a block, each has a part of its memory, of the same size in every config: what a
 * pair uses of it, as sm90_shared_bytes() counts, and how much there is; otherwise the block's. */
uint32_t sm90_own_bytes(const kjit_attention_sm90_config *config);
uint32_t sm90_room(const kjit_attention_sm90_config *config);
uint32_t
sm90_terms_bytes(const kjit_attention_sm90_config *config); /* what staging a variant's terms takes beyond both */
/* Boxes of terms in each consumer's ring, where TMA brings them: SM90_TERM_SLOTS; 0: TMA brings none. */
int sm90_term_slots(const kjit_attention_sm90_config *config);
bool sm90_stages_terms(const kjit_attention_sm90_config *config);     /* there is room for all three */
uint32_t sm90_bounds_bytes(const kjit_attention_sm90_config *config); /* bounds of a variant's rows, where they fit */
uint32_t sm90_keep_bytes(const kjit_attention_sm90_config *config);   /* likewise keep words; 0: it has none */
uint32_t sm90_registers(const kjit_attention_sm90_config *config); /* registers of a consumer thread for O, S and P */

/* The two rules that depend on the tile: a consumer thread's registers, a block's shared memory. Choosing runs on the
 * launch path, where checking every rule would be noticeable. */
bool sm90_fits(const kjit_attention_sm90_config *config);

/* The canonical form: fields that cannot change the machine code get their plain value. */
kjit_attention_sm90_config sm90_canonical(const kjit_attention_sm90_config *config);

/* Check every rule. KJIT_ERR_INVALID_CONFIG: "<field> is <value>: must be <rule>". */
kjit_status sm90_check(const kjit_attention_sm90_config *config, kjit_error *error);

/* Check that the kernel can index this problem, whatever the config. KJIT_ERR_UNSUPPORTED. */
kjit_status sm90_check_problem(const kjit_attention_problem *problem, kjit_error *error);

#endif
