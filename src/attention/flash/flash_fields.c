#include "attention/flash/flash_fields.h"

#define COUNT(name, kind, token, text) +1
#define ROW(name, kind, token, text)   {#name, token, text, FIELD_##kind, (uint32_t)offsetof(kjit_flash_config, name)},
#define TRAIT_COUNT(name, kind, text)  +1
#define TRAIT_ROW(name, kind, text)    {#name, "", text, FIELD_##kind, (uint32_t)offsetof(kjit_flash_traits, name)},

#define VARIANT_ROW(name, kind, token, text)                                                                           \
  {#name, token, text, FIELD_##kind, (uint32_t)offsetof(kjit_flash_variant, config.name)},
#define VARIANT_TRAIT_ROW(name, kind, text)                                                                            \
  {#name, "", text, FIELD_##kind, (uint32_t)offsetof(kjit_flash_variant, traits.name)},

enum {
  FIELD_COUNT = 0 KJIT_FLASH_FORWARD_FIELDS(COUNT),
  TRAITS = 0 KJIT_FLASH_FORWARD_TRAITS(TRAIT_COUNT),
  VARIANT_FIELDS = FIELD_COUNT + TRAITS
};

_Static_assert(VARIANT_FIELDS <= FIELD_COUNT_MAX, "too many fields");
_Static_assert(sizeof(kjit_flash_config) == 4 * FIELD_COUNT, "a config is its fields, without padding");
_Static_assert(sizeof(kjit_flash_traits) == 4 * TRAITS, "traits are their fields, without padding");
_Static_assert(sizeof(kjit_flash_variant) == 4 * VARIANT_FIELDS, "a variant is its fields, without padding");

static const struct field rows[FIELD_COUNT] = {KJIT_FLASH_FORWARD_FIELDS(ROW)};
static const struct field trait_rows[TRAITS] = {KJIT_FLASH_FORWARD_TRAITS(TRAIT_ROW)};
static const struct field variant_rows[VARIANT_FIELDS] = {KJIT_FLASH_FORWARD_FIELDS(VARIANT_ROW)
                                                              KJIT_FLASH_FORWARD_TRAITS(VARIANT_TRAIT_ROW)};

const struct field_table flash_fields = {
    .family = "flash_forward",
    .type = "FlashForwardKernelConfig",
    .fields = rows,
    .count = FIELD_COUNT,
    .config_bytes = sizeof(kjit_flash_config),
};

const struct field_table flash_trait_fields = {
    .family = "the traits",
    .type = "kjit_flash_traits",
    .fields = trait_rows,
    .count = TRAITS,
    .config_bytes = sizeof(kjit_flash_traits),
};

const struct field_table flash_variant_fields = {
    .family = "flash_forward",
    .type = "kjit_flash_variant",
    .fields = variant_rows,
    .count = VARIANT_FIELDS,
    .config_bytes = sizeof(kjit_flash_variant),
};

#define KIND_DTYPE                    "dtype"
#define KIND_INT                      "int"
#define KIND_BOOL                     "bool"
#define KIND_LOAD                     "load"
#define INFO(name, kind, token, text) {#name, KIND_##kind, token, text, (uint32_t)offsetof(kjit_flash_config, name)},

const kjit_field_info *kjit_flash_field(size_t index) {
  static const kjit_field_info infos[FIELD_COUNT] = {KJIT_FLASH_FORWARD_FIELDS(INFO)};
  return index < FIELD_COUNT ? &infos[index] : NULL;
}
