// What kernels that compute gradients call of an attention variant: the changed score, its derivative, the mask of a
// pair of a query and a key, and the mask of a block of them. The variant's own functions come from the generated
// header attention_variant.cuh.
#pragma once
#include <kjit/attention/variant_real_ranges.h>
#include <kjit/ptx/math.cuh>
#include <kjit/types.cuh>

#include "attention_variant/params.h"

#include "attention_variant.cuh"

namespace variant {

constexpr bool kScored = KJIT_VARIANT_SCORE;
constexpr bool kMasked = KJIT_VARIANT_MASK;

struct Hooks {
  const attention_variant_params &v;
  const int batch;

  KJIT_DEVICE Hooks(const attention_variant_params &params, int batch) : v(params), batch(batch) {}

  static KJIT_DEVICE int within(int index, int count) { return index < count ? index : count - 1; }
  KJIT_DEVICE int query_of(int query) const { return within(query, v.arguments.seq_q); }
  KJIT_DEVICE int key_of(int key) const { return within(key, v.arguments.seq_kv); }

  // The changed score, times log2(e), of a product of a query and a key.
  KJIT_DEVICE float score_log2(float product, float scale_log2, int head, int query, int key) const {
    if constexpr (!kScored) return product * scale_log2;
    return kjit_variant_score(v.arguments, product * v.score_scale, batch, head, query_of(query), key_of(key)) * kLog2E;
  }

  // Its derivative by the scaled product.
  KJIT_DEVICE float slope(float product, int head, int query, int key) const {
    if constexpr (!kScored) return 1.0f;
    return kjit_variant_score_grad(v.arguments, product * v.score_scale, batch, head, query_of(query), key_of(key));
  }

  KJIT_DEVICE bool sees(int head, int query, int key) const {
    if constexpr (!kMasked) return true;
    return kjit_variant_mask(v.arguments, batch, head, query_of(query), key_of(key));
  }

  // What a block of queries and keys is, by the mask on their ranges.
  KJIT_DEVICE int state(int head, int query, int queries, int key, int keys) const {
    if constexpr (!kMasked) return VARIANT_FULL;
    const int query_end = query + queries, key_end = key + keys;
    return kjit_variant_block(v.arguments, batch, head, query_of(query), query_of(query_end - 1) + 1, key_of(key),
                              key_of(key_end - 1) + 1);
  }
};

} // namespace variant
