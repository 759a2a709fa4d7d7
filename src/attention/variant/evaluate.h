/* Runs programs on the host: on values, and on ranges. */
#ifndef KJIT_ATTENTION_VARIANT_EVALUATE_H
#define KJIT_ATTENTION_VARIANT_EVALUATE_H

#include "attention/variant/variant.h"

union variant_value {
  int32_t integer;
  double real;
  bool truth;
  long long wide;
};

/* The values of a program's results. */
void variant_run(const kjit_attention_variant *variant, const struct variant_program *program,
                 const struct kjit_variant_arguments *arguments, double score, const struct variant_place *place,
                 union variant_value *results);

#endif
