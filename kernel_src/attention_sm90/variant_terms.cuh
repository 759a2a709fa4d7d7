// The terms of a variant's scores that lie in a tensor, 16 bits each, on their way to a consumer's shared memory.
//
// A warp copies the terms of its own 16 rows, 16 bytes a lane, one key block at a time:
//   1. begin()    those of a tile's first block, when its entry is there;
//   2. wait()     before they are read;
//   3. done()     when they have been read, with kAddedInFlight: copies those of the key block before, which is the
//   next one
//                 mostly, because the walk goes towards the first key;
//   4. require()  when the next block's entry is there: its terms, unless they are those that were copied ahead.
// load() says where a step's terms are read. All lanes of a warp call them together. Where TMA can bring the terms, a
// TermRing takes the place of this (variant_term_ring.cuh).
#pragma once
#include <kjit/ptx/cp_async.cuh>

#include "attention_sm90/pipeline.cuh"
#include "attention_variant/row_score.cuh"

struct TermCopies {
  // Where there is room for a step's terms in shared memory; otherwise they lie in registers.
  static constexpr bool kStaged = variant::kTiled && shared::kStagesTerms;
  // A consumer adds the terms to S while O is in flight, and the next block's are copied from then on. Up to 64 columns
  // it has no time for that: there terms are read in the exponent.
  static constexpr bool kAddedInFlight = kStaged && cfg::kHeadDim > 64;
  static constexpr int kNoKey = -1;

  const attention_variant_params &v;
  const uint32_t place; // the warp's first row in shared memory
  const int lane;
  const char *rows[2];    // the terms of the lane's rows: lane / 4 and + 8
  int first_key = kNoKey; // of the block whose terms were copied last

  // A step's terms of one of a thread's rows.
  template <int kColumns8> using Terms = typename variant::TermsOf<kStaged, kColumns8, shared::kTermRowBytes>::Type;

  KJIT_DEVICE TermCopies(const attention_variant_params &v, Layout at, int consumer, int warp, int lane)
      : v(v), place(at.terms(consumer) + warp * 16 * shared::kTermRowBytes), lane(lane) {}

  template <bool kWhole, typename Terms>
  KJIT_DEVICE void load(Terms &terms, const variant::Row &row, int key, int r) const {
    if constexpr (variant::kTiled) terms.template load<kWhole>(v, row, key, lane, place, r);
  }

  KJIT_DEVICE void begin(const variant::Row &first, const variant::Row &second, int key) {
    if constexpr (kStaged) {
      rows[0] = variant::row_terms(v, first);
      rows[1] = variant::row_terms(v, second);
      copy(key);
    }
  }
  KJIT_DEVICE void require(int key) {
    if constexpr (kStaged) {
      if constexpr (kAddedInFlight) {
        if (first_key == key) return;
        wait(); // for another block's, which would be written to the same place
      }
      copy(key);
    }
  }
  KJIT_DEVICE void wait() const {
    if constexpr (kStaged) {
      cp_async_wait_group<0>();
      __syncwarp(); // those that other lanes copied are there too
    }
  }
  // `key`: the first one of the block whose terms have been read
  KJIT_DEVICE void done(int key, bool is_last) {
    if constexpr (kAddedInFlight) {
      first_key = kNoKey;
      if (!is_last && key > 0) copy(key - cfg::kKeyRows);
    }
  }

private:
  KJIT_DEVICE void copy(int key) {
    first_key = key;
    __syncwarp(); // all lanes have read the terms before
    const int end = variant::row_term_bytes(v);
    if (2 * (key + cfg::kKeyRows) <= end)
      copy_rows<true>(2 * key, end);
    else
      copy_rows<false>(2 * key, end);
    cp_async_commit_group();
  }
  template <bool kWhole> KJIT_DEVICE void copy_rows(int first, int end) const {
#pragma unroll
    for (int r = 0; r < 2; r++)
      variant::copy_terms<2 * cfg::kKeyRows, kWhole>(rows[r], first, end,
                                                     place + (lane / 4 + 8 * r) * shared::kTermRowBytes, lane);
  }
};
