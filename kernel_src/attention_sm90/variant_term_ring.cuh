// The terms of a variant's scores that TMA brings (variant_term_producer.cuh), as a consumer reads them: in place of
// TermCopies, with the same functions.
//
// A consumer has a ring of boxes, each of 64 keys of its 64 rows, in the 128-byte swizzle, so that the eight rows of a
// matrix lie in different banks. A step's boxes are
//   1. wait()     waited for before they are read, by the mbarriers on which TMA counts their bytes;
//   2. done()     given back when they have been read, by one arrival of each warp.
// All lanes of a warp call them together.
#pragma once
#include <kjit/ptx/mbarrier.cuh>

#include "attention_sm90/variant_terms.cuh"

// A step's terms of one of a thread's rows, as variant::StagedTerms.
template <int kColumns8> struct BoxedTerms {
  // Where this lane's 16 bytes of the first four column tiles of a box are.
  uint32_t chunk[shared::kTermBoxes == 0 ? 1 : shared::kTermBoxes];
  mutable uint32_t word[4];

  KJIT_DEVICE float at(int column) const {
    float low = 0, high = 0;
#if KJIT_VARIANT_TILE
    const int tile = column / 8;
    if (column % 32 == 0) ldmatrix_x4(word, chunk[tile / 8] ^ (tile % 8 / 4 * 64));
    kjit_variant_tile_pair(word[tile % 4], low, high);
#endif
    return column % 2 ? high : low;
  }
};

struct TermRing {
  static constexpr bool kUsed = variant::kTiled && shared::kTermSlots > 0;
  // As TermCopies::kAddedInFlight. A step is shorter with it but for heads of 96 and 112 columns, by 2 %.
  static constexpr bool kAddedInFlight = cfg::kHeadDim <= 80 || cfg::kHeadDim > 112;

  const Layout at;
  const int consumer, warp, lane;
  Ring<kUsed ? shared::kTermSlots : 1> boxes; // the step's first one

  template <int kColumns8> using Terms = BoxedTerms<kColumns8>;

  KJIT_DEVICE TermRing(const attention_variant_params &, Layout at, int consumer, int warp, int lane)
      : at(at), consumer(consumer), warp(warp), lane(lane) {}

  KJIT_DEVICE void begin(const variant::Row &, const variant::Row &, int) const {}
  KJIT_DEVICE void require(int) const {}

  template <bool, typename Terms> KJIT_DEVICE void load(Terms &terms, const variant::Row &, int, int r) const {
    const uint32_t own = (warp * 16 + 8 * r + lane % 8) * SM90_ROW_BYTES + ((lane / 8 ^ lane % 8) << 4);
    auto box = boxes;
#pragma unroll
    for (int i = 0; i < shared::kTermBoxes; i++) {
      terms.chunk[i] = at.box(consumer, box.slot) + own;
      box.advance();
    }
  }

  KJIT_DEVICE void wait() const {
    auto box = boxes;
#pragma unroll
    for (int i = 0; i < shared::kTermBoxes; i++) {
      mbarrier_wait_parity(at.box_full(consumer, box.slot), box.parity);
      box.advance();
    }
  }

  KJIT_DEVICE void done(int, bool) {
    __syncwarp(); // every lane has read its rows
#pragma unroll
    for (int i = 0; i < shared::kTermBoxes; i++) {
      mbarrier_arrive_if(at.box_empty(consumer, boxes.slot), lane == 0);
      boxes.advance();
    }
  }
};

// How a consumer gets its terms.
template <bool kRing> struct TermSourceOf { using Type = TermCopies; };
template <> struct TermSourceOf<true> { using Type = TermRing; };
using TermSource = TermSourceOf<TermRing::kUsed>::Type;
