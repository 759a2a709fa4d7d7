#include "attention/sm90/sm90_fields.h"

#define COUNT(name, kind, text) +1
#define ROW(name, kind, text)   {#name, "", text, FIELD_##kind, (uint32_t)offsetof(kjit_attention_sm90_config, name)},

enum { FIELD_COUNT = 0 KJIT_ATTENTION_SM90_FIELDS(COUNT) };

_Static_assert(FIELD_COUNT <= FIELD_COUNT_MAX, "too many fields");
_Static_assert(sizeof(kjit_attention_sm90_config) == 4 * FIELD_COUNT, "a config is its fields, without padding");

static const struct field rows[FIELD_COUNT] = {KJIT_ATTENTION_SM90_FIELDS(ROW)};

const struct field_table sm90_fields = {
    .family = "attention_sm90",
    .type = "kjit_attention_sm90_config",
    .fields = rows,
    .count = FIELD_COUNT,
    .config_bytes = sizeof(kjit_attention_sm90_config),
};

#define KIND_DTYPE             "dtype"
#define KIND_INT               "int"
#define KIND_BOOL              "bool"
#define INFO(name, kind, text) {#name, KIND_##kind, "", text, (uint32_t)offsetof(kjit_attention_sm90_config, name)},

const kjit_field_info *kjit_attention_sm90_field(size_t index) {
  static const kjit_field_info infos[FIELD_COUNT] = {KJIT_ATTENTION_SM90_FIELDS(INFO)};
  return index < FIELD_COUNT ? &infos[index] : NULL;
}
