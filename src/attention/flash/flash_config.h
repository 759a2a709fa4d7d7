/* Configs of flash_forward: their fields, the numbers that follow from them, their canonical form, and which are legal.
 * Pure.
 *
 * A kjit_config of the family has 17 values: the 13 of kjit_flash_config, which say how, and four traits, which say
 * what is computed and follow from the problem. struct flash_variant is the view of these values. */
#ifndef KJIT_ATTENTION_FLASH_FLASH_CONFIG_H
#define KJIT_ATTENTION_FLASH_FLASH_CONFIG_H

#include <kjit/flash_forward.h>

#include "family/family.h"

enum { FLASH_MAX_HEAD = KJIT_HEAD_DIM_MAX, FLASH_MIN_D_HEAD = 32 };

/* What a kernel computes, which follows from the problem. A single key head for all query heads is not `grouped`,
 * because a stride of 0 does it. */
struct flash_traits {
#define FLASH_TRAIT_MEMBER(name, kind, text) int32_t name;
  KJIT_FLASH_FORWARD_TRAITS(FLASH_TRAIT_MEMBER)
#undef FLASH_TRAIT_MEMBER
};

/* One kernel: how it computes, and what. config.d_head is the larger head size of the traits in whole 16s, at least 32.
 */
struct flash_variant {
  kjit_flash_config config;
  struct flash_traits traits;
};

extern const struct field_table flash_config_fields;  /* of kjit_flash_config    */
extern const struct field_table flash_trait_fields;   /* of struct flash_traits  */
extern const struct field_table flash_variant_fields; /* of struct flash_variant */
extern const kjit_field_info flash_variant_rows[]; /* rows of flash_variant_fields; FLASH_VARIANT_FIELD_COUNT of them */

#define FLASH_COUNT_FIELD(name, kind, token, text) +1
#define FLASH_COUNT_TRAIT(name, kind, text)        +1
enum {
  FLASH_CONFIG_FIELD_COUNT = 0 KJIT_FLASH_FORWARD_FIELDS(FLASH_COUNT_FIELD),
  FLASH_TRAIT_COUNT = 0 KJIT_FLASH_FORWARD_TRAITS(FLASH_COUNT_TRAIT),
  FLASH_VARIANT_FIELD_COUNT = FLASH_CONFIG_FIELD_COUNT + FLASH_TRAIT_COUNT
};

/* flash_variant_fields as an initialiser. */
#define FLASH_VARIANT_TABLE                                                                                            \
  {                                                                                                                    \
    .family = "flash_forward", .fields = flash_variant_rows, .count = FLASH_VARIANT_FIELD_COUNT,                       \
    .config_bytes = sizeof(struct flash_variant)                                                                       \
  }

/* The family's values as a struct. */
static inline const struct flash_variant *flash_variant_view(const int32_t *values) {
  return (const struct flash_variant *)values;
}

/* The kernel that a config's name alone stands for: no mask, no groups, both head sizes equal to d_head. */
struct flash_variant flash_variant_plain(const kjit_flash_config *config);

/* The traits of a problem whose defaults are filled in. Sizes are copied as they are; the rules judge them. */
struct flash_traits flash_traits_of(const kjit_attention_problem *problem);

/* The columns that a head of `head_dim` columns, from 1 to FLASH_MAX_HEAD, takes in shared memory: whole 16s. */
int32_t flash_traits_columns(int32_t head_dim);

/* The d_head of a config for these head sizes: the larger of the two in whole 16s, at least FLASH_MIN_D_HEAD. */
int32_t flash_traits_d_head(const struct flash_traits *traits);

/* Threads of a block, for a legal variant. */
uint32_t flash_threads(const struct flash_variant *variant);
uint32_t flash_shared_bytes(const struct flash_variant *variant); /* dynamic, per block */

/* Set fields that cannot change the machine code to their plain values, so that equal code has one config. Takes a
 * legal variant; a second call changes nothing. */
void flash_canonicalize(struct flash_variant *variant);

/* Check every rule that needs no architecture. KJIT_ERR_INVALID_CONFIG: "<field> is <value>: <rule>". */
kjit_status flash_check(const struct flash_variant *variant, kjit_error *error);

/* Check that a legal kernel can run there. KJIT_ERR_UNSUPPORTED for an architecture that is older than sm_80 or has too
 * little shared memory; KJIT_ERR_INVALID_ARG for a name that is no architecture's. */
kjit_status flash_check_place(const struct flash_variant *variant, const struct family_place *place, kjit_error *error);

#endif
