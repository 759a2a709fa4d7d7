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

// The sums over two rows of `kColumns` columns of a[i] * b[i]. The four lanes of a quad share their rows and all
// receive the sums; all lanes of the warp must call this. Every load is issued before the first product, so that their
// latencies overlap.
template <typename Element, int kColumns>
KJIT_DEVICE void quad_row_products(float (&sums)[2], const char *const (&a)[2], const char *const (&b)[2], int lane) {
  constexpr int kChunks = kColumns / kChunkElements, kPerLane = ceil_div(kChunks, 4);
  Chunk x[2][kPerLane], y[2][kPerLane];
#pragma unroll
  for (int r = 0; r < 2; r++)
#pragma unroll
    for (int i = 0; i < kPerLane; i++) {
      const int chunk = lane % 4 + 4 * i;
      x[r][i] = y[r][i] = Chunk{};
      if (chunk >= kChunks) continue;
      x[r][i] = ld_global_nc_16(a[r] + chunk * kChunkBytes);
      y[r][i] = ld_global_nc_16(b[r] + chunk * kChunkBytes);
    }
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4 * kPerLane; i++) {
      float x0, x1, y0, y1;
      cvt_f32_x2(Element{}, x[r][i / 4].word[i % 4], x0, x1);
      cvt_f32_x2(Element{}, y[r][i / 4].word[i % 4], y0, y1);
      sum += x0 * y0 + x1 * y1;
    }
    sums[r] = quad_sum(sum);
  }
}

// LSE, as lse_log2() has it, and delta of the two rows that a lane has of 16.
struct RowStatistics {
  float lse[2], delta[2];
};

// Compute LSE and delta of two rows, which the four lanes of a quad share, and keep delta for the passes that read it.
// All lanes of the warp must call this. `Params` is flash_backward_params.
template <typename Element, int kColumns, typename Params>
KJIT_DEVICE RowStatistics own_statistics(const Params &p, int batch, int head, const int (&rows)[2], int lane) {
  const char *o[2], *dout[2];
  float lse[2], dlse[2] = {0.0f, 0.0f}, sums[2];
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int64_t row = rows[r] < p.seq_q ? rows[r] : 0; // a row behind the last reads the first one's numbers
    o[r] = (const char *)p.o + (batch * p.o_stride.batch + head * p.o_stride.head + row * p.o_stride.seq) * 2;
    dout[r] =
        (const char *)p.dout + (batch * p.dout_stride.batch + head * p.dout_stride.head + row * p.dout_stride.seq) * 2;
    lse[r] = p.lse[batch * p.lse_stride.batch + head * p.lse_stride.head + row];
    if (p.dlse != nullptr) dlse[r] = p.dlse[batch * p.dlse_stride.batch + head * p.dlse_stride.head + row];
  }
  quad_row_products<Element, kColumns>(sums, o, dout, lane);
  RowStatistics found;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const bool exists = rows[r] < p.seq_q;
    found.lse[r] = exists ? lse_log2(lse[r]) : infinity();
    found.delta[r] = sees_no_key(lse[r]) || !exists ? 0.0f : sums[r] - dlse[r];
    if (exists && lane % 4 == 0)
      p.delta[batch * p.delta_stride.batch + head * p.delta_stride.head + rows[r]] = found.delta[r];
  }
  return found;
}
