// The statistics of a query row that the backward pass needs: its log-sum-exp as the power of 2 that turns a score into
// a probability, and delta = sum(dO * O) - dLSE.
//
// A row that sees no key has a log-sum-exp of -inf and an output of 0. Its probabilities are 0 by their mask; the
// log-sum-exp is taken as 0 and delta as 0, so that no infinity meets another. A row behind the last gets +inf, with
// which every probability is 0.
#pragma once
#include <kjit/ptx/cvt_f32.cuh>
#include <kjit/ptx/math.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/types.cuh>
#include <kjit/warp.cuh>

KJIT_DEVICE float infinity() {
  return __uint_as_float(0x7f800000u);
}

KJIT_DEVICE bool sees_no_key(float lse) {
  return lse == -infinity();
}

// What is subtracted from a score times log2(e): P = exp2(score * log2(e) - lse_log2(lse)).
KJIT_DEVICE float lse_log2(float lse) {
  return sees_no_key(lse) ? 0.0f : lse * kLog2E;
}

// The sum over a row of `kColumns` columns of a[i] * b[i]. The four lanes of a quad share a row and all receive the
// sum; all lanes of the warp must call this.
template <typename Element, int kColumns>
KJIT_DEVICE float quad_row_product(const char *a, const char *b, bool exists, int lane) {
  float sum = 0.0f;
#pragma unroll 4
  for (int chunk = lane % 4; chunk < kColumns / kChunkElements; chunk += 4) {
    if (!exists) break;
    const Chunk x = ld_global_nc_16(a + chunk * kChunkBytes), y = ld_global_nc_16(b + chunk * kChunkBytes);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float x0, x1, y0, y1;
      cvt_f32_x2(Element{}, x.word[i], x0, x1);
      cvt_f32_x2(Element{}, y.word[i], y0, y1);
      sum += x0 * y0 + x1 * y1;
    }
  }
  return quad_sum(sum);
}
