/* The family's field tables: the one description of its configs, and what a kernel's traits add to them. */
#ifndef KJIT_ATTENTION_FLASH_FLASH_FIELDS_H
#define KJIT_ATTENTION_FLASH_FLASH_FIELDS_H

#include <kjit/flash_forward.h>

#include "family/field_table.h"

extern const struct field_table flash_fields;         /* of kjit_flash_config  */
extern const struct field_table flash_trait_fields;   /* of kjit_flash_traits  */
extern const struct field_table flash_variant_fields; /* of kjit_flash_variant */

#endif
