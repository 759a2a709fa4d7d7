/* flash_forward's kernels as struct flash_variant, which is the library's own here. */
#ifndef KJIT_TESTS_UNIT_ATTENTION_FLASH_VARIANTS_H
#define KJIT_TESTS_UNIT_ATTENTION_FLASH_VARIANTS_H

#include "attention/flash/flash_family.h"
#include "support/flash_variants.h"

#endif
