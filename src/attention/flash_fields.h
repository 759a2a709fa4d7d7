/* The family's field table: the one description of its configs. */
#ifndef KJIT_ATTENTION_FLASH_FIELDS_H
#define KJIT_ATTENTION_FLASH_FIELDS_H

#include <kjit/flash_forward.h>

#include "jit/field_table.h"

extern const struct field_table flash_fields;

#endif
