/* What a variant is, for people. */
#ifndef KJIT_ATTENTION_VARIANT_EXPLAIN_H
#define KJIT_ATTENTION_VARIANT_EXPLAIN_H

#include "attention/variant/variant.h"
#include "base/text.h"

void variant_explain(const kjit_attention_variant *variant, struct text *out);

#endif
