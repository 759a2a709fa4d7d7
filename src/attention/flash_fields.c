#include "attention/flash_fields.h"

#define COUNT(name, kind, token, text) +1
#define ROW(name, kind, token, text)   {#name, token, text, FIELD_##kind, (uint32_t)offsetof(kjit_flash_config, name)},

enum { FIELD_COUNT = 0 KJIT_FLASH_FORWARD_FIELDS(COUNT) };

_Static_assert(FIELD_COUNT <= FIELD_COUNT_MAX, "too many fields");
_Static_assert(sizeof(kjit_flash_config) == 4 * FIELD_COUNT, "a config is its fields, without padding");

static const struct field rows[FIELD_COUNT] = {KJIT_FLASH_FORWARD_FIELDS(ROW)};

const struct field_table flash_fields = {
    .family = "flash_forward",
    .type = "FlashForwardKernelConfig",
    .fields = rows,
    .count = FIELD_COUNT,
    .config_bytes = sizeof(kjit_flash_config),
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
