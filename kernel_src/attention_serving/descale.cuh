// What the elements of a cache of 8 bits are multiplied by: one number for the keys, and one for the values, of each
// (sequence, key head). A number that is not positive counts as 1e-30, so that no score becomes NaN.
//
// Whoever includes this has included a config.cuh that defines cfg::kNarrow.
#pragma once
#include <kjit/types.cuh>

#include "attention_serving/params.h"

struct Descales {
  float k, v;
};

KJIT_DEVICE float descale_of(const attention_serving_descales &descales, int sequence, int head) {
  if (!descales.at) return 1.0f;
  return fmaxf(descales.at[sequence * descales.batch + head * descales.head], 1e-30f);
}

// Of the keys and values of a key head; 1 where they are of 16 bits.
KJIT_DEVICE Descales descales_of(const attention_serving_params &p, int sequence, int head) {
  if constexpr (!cfg::kNarrow) return {1.0f, 1.0f};
  return {descale_of(p.k_descale, sequence, head), descale_of(p.v_descale, sequence, head)};
}
