/* Making a variant inside the library. */
#ifndef KJIT_ATTENTION_VARIANT_CREATE_H
#define KJIT_ATTENTION_VARIANT_CREATE_H

#include "attention/variant/variant.h"

/* kjit_attention_variant_create() for a text whose struct is known to be whole. */
kjit_status variant_create(kjit_attention_variant **out, const struct mem *mem, const kjit_attention_variant_text *text,
                           kjit_error *error);

/* The last release frees. Accepts NULL. */
void variant_release(kjit_attention_variant *variant);

#endif
