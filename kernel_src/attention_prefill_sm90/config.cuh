// The configuration of attention_prefill_sm90. The fields that it shares with attention_sm90 are read and checked by
// that kernel's config.cuh, to which a ragged problem is a causal one: tiles differ in length, and rows may be empty.
#pragma once

#if !defined(KJIT_softcap)
#error "KJIT_softcap is not defined: 0 or 1"
#elif !defined(KJIT_loads)
#error "KJIT_loads is not defined: boxes of a band, 0, of all bands, 1, or rows, 2; of e4m3 rows, 3, or boxes, 4"
#elif !defined(KJIT_few)
#error "KJIT_few is not defined: 0; or 1, sequences of few rows have a list of their own"
#elif !defined(KJIT_launch_bytes)
#error "KJIT_launch_bytes is not defined: the shared memory that the host launches a block with"
#elif !defined(KJIT_launch_threads)
#error "KJIT_launch_threads is not defined: the threads of a block that the host launches"
#endif

#define KJIT_causal 1
#define KJIT_split  0

#include <kjit/banded_tile.cuh>

#include "attention_prefill_sm90/layout.h"
#include "attention_sm90/config.cuh"

// A cache of e4m3 is multiplied in fp16, which has all of its values, whatever the type of Q and O.
#if KJIT_loads >= 3 && KJIT_dtype == 15
KJIT_WGMMA(KJIT_tile_n, Fp16)
#if KJIT_head_dim_v != KJIT_tile_n
KJIT_WGMMA(KJIT_head_dim_v, Fp16)
#endif
#endif

namespace cfg {

constexpr bool kSoftcap = KJIT_softcap; // scores are capped by a tanh
constexpr bool kGrouped = KJIT_loads == PREFILL_LOADS_GROUPS;
constexpr bool kFew = KJIT_few; // one consumer takes sequences of few rows, whose keys may be divided
// Pages that no box fits are loaded by a warpgroup of its own (gatherer.cuh), which has registers of the consumers'. A
// cache of e4m3 is widened by warps beside the producer (widener.cuh).
constexpr bool kNarrow = KJIT_loads >= PREFILL_LOADS_WIDENED_ROWS; // K and V of 8 bits an element, else of 16
constexpr int kCacheBytes = kNarrow ? 1 : 2;
constexpr bool kGathers = KJIT_loads == PREFILL_LOADS_ROWS || KJIT_loads == PREFILL_LOADS_WIDENED_ROWS;
using Product = ElementOf<KJIT_loads >= PREFILL_LOADS_WIDENED_ROWS ? 5 : KJIT_dtype>::type; // Q, K, V, P as multiplied
constexpr bool kConverts = kNarrow && KJIT_dtype == 15; // Q becomes fp16 in shared memory (converter.cuh)
constexpr int kHelpers = 3;                             // warps that widen, beside the producer
constexpr int kGatherWarps = kThreadsPerWarpgroup / kLanesPerWarp;
constexpr int kLaunchThreads = kThreads + (kGathers ? kThreadsPerWarpgroup : 0);
// With kConverts: a float for each row of Q in each buffer, and a word for each warp that converts.
constexpr int kFactorBytes = kConverts ? kQueryRows * 4 + PREFILL_FLAG_BYTES : 0;
constexpr int kWarps = kLaunchThreads / kLanesPerWarp;
// Registers of each thread after setmaxnreg. Warps that widen need more than a producer does. Three warpgroups are
// launched with 168 a thread, four with 128.
constexpr int kFirstRegisters = !kNarrow ? kProducerRegisters : kGathers ? 56 : 72; // of the first warpgroup
constexpr int kGathererRegisters = kConsumers == 1 ? 56 : 40;
constexpr int kMultiplierRegisters = kConsumers == 1 || !(kNarrow || kGathers) ? kConsumerRegisters
                                     : kGathers ? (4 * 128 - kFirstRegisters - kGathererRegisters) / 2
                                                : (3 * 168 - kFirstRegisters) / 2;
static_assert(kLaunchThreads == KJIT_launch_threads, "launch_threads: the host launches as many as the roles have");
static_assert(!kGathers || kConsumers == 1 || (kConsumers == 2 && kHeadDimV <= PREFILL_GATHERED_COLUMNS),
              "loads: a further warpgroup leaves the consumers too few registers");
static_assert(!kNarrow || kConsumers < 3, "loads: warps that widen leave three consumers too few registers");
static_assert(!kNarrow || (kHeadDim % 16 == 0 && kHeadDimV % 16 == 0), "loads: 16 columns of e4m3 are loaded at once");
static_assert(!kNarrow || kKeyRows % PREFILL_PATTERN_ROWS == 0,
              "loads: rows are widened a swizzle's pattern at a time");
static_assert(!kGathers || kKeyRows % (8 * kGatherWarps) == 0, "loads: a warp's rows begin with a swizzle's pattern");

// How a block of K and V of 16 bits lies.
using KeyTile = BandedTile<kKeyRows, bands(kHeadDim), kGrouped>;
using ValueTile = BandedTile<kKeyRows, bands(kHeadDimV), kGrouped>;

// How what boxes bring of e4m3 lies in the buffer that it is widened in: [band][row][128], with the swizzle, at the
// buffer's end. So a row's bytes lie where the same row of the last bands of 16 bits will.
template <int kColumns> struct Narrow {
  static constexpr int kBands = (kColumns + kRowBytes - 1) / kRowBytes;
  static constexpr int kBytes = kBands * kKeyRows * kRowBytes;
  static constexpr int kAt = (bands(kColumns) - kBands) * kKeyRows * kRowBytes;
};

} // namespace cfg
