/* The kernels that run before an attention variant's: block_list.cu and block_map.cu of kernel_src/attention_variant.
 */
#ifndef KJIT_ATTENTION_ATTENTION_VARIANT_KERNELS_H
#define KJIT_ATTENTION_ATTENTION_VARIANT_KERNELS_H

#include "family/family.h"

extern const kjit_family attention_block_list_family, attention_block_map_family;

/* The values of their configs: they have no fields. */
extern const int32_t attention_no_fields[1];

#endif
