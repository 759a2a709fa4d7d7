// The configuration of attention_serving_sm90: the macros that kjit writes in front of the source (KJIT_<field>) become
// typed constants, and their values are checked. No other file reads these macros. It also has what the headers of
// attention_serving that this kernel includes expect of a config.cuh.
#pragma once
#include <kjit/banded_tile.cuh>
#include <kjit/ptx/barrier.cuh>
#include <kjit/ptx/wgmma.cuh>
#include <kjit/shared_tile.cuh>
#include <kjit/types.cuh>

#include "attention_serving_sm90/layout.h"

#include "attention_serving/byte_tile.cuh"
#include "attention_serving/params.h"

#if !defined(KJIT_dtype)
#error "KJIT_dtype is not defined: element type, 5 (fp16) or 15 (bf16)"
#elif !defined(KJIT_cache)
#error "KJIT_cache is not defined: element type of K and V, that of Q or 24 (e4m3)"
#elif !defined(KJIT_head_dim) || !defined(KJIT_head_dim_v)
#error "KJIT_head_dim or KJIT_head_dim_v is not defined: columns of Q and K, columns of V and O"
#elif !defined(KJIT_rows) || !defined(KJIT_keys)
#error "KJIT_rows or KJIT_keys is not defined: packed query rows of a tile, key rows of a block"
#elif !defined(KJIT_stages) || !defined(KJIT_blocks_per_sm)
#error "KJIT_stages or KJIT_blocks_per_sm is not defined: key blocks in shared memory, blocks of threads on an SM"
#elif !defined(KJIT_softcap)
#error "KJIT_softcap is not defined: 0 or 1"
#elif !defined(KJIT_one_part)
#error "KJIT_one_part is not defined: 0 or 1"
#elif !defined(KJIT_gathered) || !defined(KJIT_runs) || !defined(KJIT_grouped) || !defined(KJIT_apart)
#error "KJIT_gathered, KJIT_runs, KJIT_grouped or KJIT_apart is not defined: 0 or 1"
#elif !defined(KJIT_shared_bytes) || !defined(KJIT_threads)
#error "KJIT_shared_bytes or KJIT_threads is not defined: what the host launches a block with"
#endif

#if KJIT_cache == 15
KJIT_WGMMA(KJIT_keys, Bf16)
#if KJIT_head_dim_v != KJIT_keys
KJIT_WGMMA(KJIT_head_dim_v, Bf16)
#endif
#elif KJIT_cache == 5
KJIT_WGMMA(KJIT_keys, Fp16)
#if KJIT_head_dim_v != KJIT_keys
KJIT_WGMMA(KJIT_head_dim_v, Fp16)
#endif
#endif

using namespace kjit;

namespace cfg {

using Element = ElementOf<KJIT_dtype>::type;

constexpr int kHeadDim = KJIT_head_dim;
constexpr int kHeadDimV = KJIT_head_dim_v;
constexpr int kRows = KJIT_rows;
constexpr bool kAnyRows = false; // as attention_serving/plan.cuh wants to know
constexpr int kKeys = KJIT_keys;
constexpr int kStages = KJIT_stages;
constexpr int kBlocksPerSm = KJIT_blocks_per_sm;
constexpr bool kSoftcap = KJIT_softcap;
constexpr bool kNarrow = KJIT_cache == 24; // K and V of 8 bits an element, else of 16
constexpr int kCacheBytes = kNarrow ? 1 : 2;

constexpr bool kOnePart = KJIT_one_part;  // a block of threads computes one part of one tile (one_part.cuh)
constexpr bool kGathered = KJIT_gathered; // keys and values are loaded row by row (one_part_rows.cuh)
constexpr bool kHasRuns = KJIT_runs;      // a block of threads computes several parts (one_part_runs.cuh)
constexpr bool kApart = KJIT_apart;       // boxes of few tiles are loaded by a warpgroup of its own
// A warpgroup of its own loads, by boxes of TMA or row by row, the one part of a block of threads or several.
constexpr bool kLoadsApart = (KJIT_runs || KJIT_gathered || KJIT_apart) && !kNarrow && KJIT_rows == SERVING_SM90_M;
constexpr bool kGrouped = KJIT_grouped;                              // a box of TMA has all bands of a head
constexpr bool kTakesTurns = kOnePart && KJIT_rows > SERVING_SM90_M; // two warpgroups (one_part_turns.cuh)
constexpr int kWorkers = kOnePart ? SERVING_SM90_ONE_PART_WORKERS(KJIT_rows) : SERVING_SM90_WORKERS;
constexpr bool kHasLoader = !kOnePart || kNarrow; // a warp beside the workers loads
constexpr int kThreads = kHasLoader ? SERVING_SM90_THREADS : SERVING_SM90_ONE_PART_THREADS(KJIT_rows, kLoadsApart);
// With one_part, the warp that loads: the last of the warpgroup that multiplies, or the first of a further one.
constexpr int kLoader = kWorkers / kLanesPerWarp - (kLoadsApart ? 0 : 1);
constexpr int kWorkersBarrier = 1; // of the named barriers; one_part_turns.cuh has further ones
constexpr int kQueryBarrier = 2;   // Q that was rotated has been read (one_part.cuh)

// A barrier among the threads that multiply, store and merge.
KJIT_DEVICE void sync_workers() {
  if constexpr (kWorkers == kThreads)
    __syncthreads();
  else
    bar_sync(kWorkersBarrier, kWorkers);
}

static_assert(kHeadDim % 8 == 0 && kHeadDim >= 8 && kHeadDim <= 256, "head_dim: a multiple of 8 up to 256");
static_assert(kHeadDimV % 8 == 0 && kHeadDimV >= 8 && kHeadDimV <= 256, "head_dim_v: a multiple of 8 up to 256");
static_assert(KJIT_cache == KJIT_dtype || KJIT_cache == 24, "cache: dtype, or 24");
static_assert(kRows == 16 || kRows == 32 || kRows == 64 || (kOnePart && kRows == 128), "rows: 16, 32, 64 or 128");
static_assert(kKeys % 16 == 0 && kKeys <= 256, "keys: a multiple of 16 up to 256");
static_assert(kStages >= 2 && kStages <= 16, "stages: 2 to 16");
static_assert(kBlocksPerSm >= 1 && kBlocksPerSm <= 2, "blocks_per_sm: 1 or 2");
static_assert(!kOnePart || !kSoftcap, "one_part: softcap 0");
static_assert(!kOnePart || (kNarrow ? kRows <= SERVING_SM90_M : kRows >= SERVING_SM90_M), "one_part: 64 rows or 128");
static_assert(!kOnePart || kNarrow || kHeadDim <= 128, "one_part: heads of up to 128 columns");
static_assert(!kOnePart || kKeys >= 64, "one_part: blocks of keys are fewer than 2^20");
constexpr int kLeastBox = kRows > SERVING_SM90_M ? 16 : 8; // rows of a box with one_part
static_assert(!kOnePart || kGathered || kStages * (kKeys / kLeastBox) <= kLanesPerWarp,
              "one_part: a lane for each box");
static_assert(!kHasRuns || kOnePart, "runs: with one_part");
static_assert(!kOnePart || !kNarrow || kHasRuns, "one_part: with K and V of 8 bits with runs");
static_assert(!kGrouped || (kLoadsApart && !kGathered), "grouped: with runs, 64 rows, cache: dtype, without gathered");
static_assert(!kGrouped || (kHeadDim % SERVING_SM90_BAND_COLUMNS == 0 && kHeadDimV % SERVING_SM90_BAND_COLUMNS == 0),
              "grouped: heads of whole bands");
static_assert(!kApart || (kLoadsApart && !kHasRuns && !kGathered), "apart: with one_part, 64 rows, cache: dtype");
static_assert(!kGathered || (kOnePart && kRows == SERVING_SM90_M && !kNarrow), "gathered: with one_part, 64 rows");
static_assert(kThreads == KJIT_threads, "threads: the host launches as many as there are");

// A tile lies in shared memory as bands of 64 columns, [band][rows][64], each with rows of 128 bytes that TMA swizzles.
// TMA fills columns that the head does not have with zeros; they are multiplied only up to the next multiple of 16.
__device__ constexpr int bands(int columns) {
  return (columns + SERVING_SM90_BAND_COLUMNS - 1) / SERVING_SM90_BAND_COLUMNS;
}
constexpr int kRowBytes = SERVING_SM90_ROW_BYTES;
// Bytes of a row of a band of K or V: half as many where that is a whole head.
constexpr int kKeyRowBytes = SERVING_SM90_CACHE_ROW_BYTES(kHeadDim * kCacheBytes, kNarrow);
constexpr int kValueRowBytes = SERVING_SM90_CACHE_ROW_BYTES(kHeadDimV * kCacheBytes, kNarrow);
constexpr int kCacheColumns = kRowBytes / kCacheBytes; // of a band of K or V, one of several
constexpr int kKeyBands = ceil_div(kHeadDim, kCacheColumns), kValueBands = ceil_div(kHeadDimV, kCacheColumns);
// How a block of K and V of 16 bits lies.
using KeyTile = BandedTile<kKeys, kKeyBands, kGrouped>;
using ValueTile = BandedTile<kKeys, kValueBands, kGrouped>;
// The same of 8 bits.
using KTile = ByteTile<kKeys, kHeadDim, kKeyRowBytes>;
using VTile = ByteTile<kKeys, kHeadDimV, kValueRowBytes>;
constexpr int kKeyBytes = kKeys * kKeyRowBytes * kKeyBands;
constexpr int kValueBytes = kKeys * kValueRowBytes * kValueBands;

// Memory of the workers for one tile: Q, whose last band is read as 64 rows however few there are; when the tile is
// done, what merging takes in its place (slice_merge.cuh); before the first tile, the costs of a chunk of
// sequences. With one_part and 64 rows Q is held in registers.
constexpr int kLastBandRows = kRows > SERVING_SM90_M ? kRows : SERVING_SM90_M;
constexpr int kQueryBytes = ((bands(kHeadDim) - 1) * kRows + kLastBandRows) * kRowBytes;
constexpr int kWordAt = SERVING_SM90_SCRATCH_BYTES * kWorkers;
constexpr int kMergeBytes = kWordAt + 16;

// With K and V of 8 bits (worker_e4m3.cuh): warps along the rows of a tile and along the keys of a block, and what
// attention_serving/warp.cuh and result.cuh take. Q is in registers; when a tile is done, each warp's O in fp32 lies in
// the workers' memory, and behind it each row's maximum and sum.
//
// Q of more than 128 columns would take so many registers that little could be on its way, so its A operands lie in
// shared memory. (Two blocks of threads on a multiprocessor have 168 registers a thread for it, and were slower.)
constexpr bool kQueryShared = kNarrow && kHeadDim > 128;
constexpr int kRowWarps = kRows / 16, kKeyWarps = kWorkers / kLanesPerWarp / kRowWarps;
constexpr int kWarpKeys = kKeys / kKeyWarps, kKeyTiles = kWarpKeys / 16;
constexpr int kOutputTiles8 = kHeadDimV / 8;
constexpr int kOutputStride = kHeadDimV + 8; // floats; the 8 spread neighbouring rows over the banks
constexpr int kStatisticsAt = kKeyWarps * kRows * kOutputStride * 4;
constexpr int kQueryAt = kStatisticsAt + kKeyWarps * kRows * 8;
constexpr int kQuerySharedBytes =
    kQueryShared ? kRowWarps * ceil_div(kHeadDim, 64) * 4 * kLanesPerWarp * kChunkBytes : 0;
constexpr int kNarrowBytes = kQueryAt + kQuerySharedBytes;
using OTile = SharedTile<kRows, kHeadDimV, true>; // in 16 bits

constexpr int kWideBytes = kQueryBytes > kMergeBytes ? kQueryBytes : kMergeBytes;
// The kernels with one_part that append new keys and rotate Q themselves. With 128 rows shared memory has no room for
// it. There, with runs, and with K and V of 8 bits the append pass does it, and calls with rotary tables are left to
// other kernels.
constexpr bool kAppends = kOnePart && !kHasRuns && !kApart && !kNarrow && kRows == SERVING_SM90_M;
// Behind what merging takes the rows of Q are rotated, with 16 bytes that spread them over the banks. Where loading is
// apart, three stages leave no room for that: the rows end where what merging takes ends, so that they begin in front
// of the workers' memory, in the last stages of V, which are loaded when Q has been read.
constexpr int kTurnedRowBytes = kHeadDim * 2 + kChunkBytes, kTurnedBytes = SERVING_SM90_M * kTurnedRowBytes;
constexpr int kTurnedAt = kLoadsApart ? kMergeBytes - kTurnedBytes : kMergeBytes;
constexpr int kTurnedStages = kLoadsApart ? ceil_div(kTurnedBytes - kMergeBytes, kValueBytes) : 0;
static_assert(!kAppends || kTurnedStages < kStages, "stages: V has room for Q behind its first block");
// Then new keys that are to be appended, each with its value.
constexpr int kKeptAt = kTurnedAt + kTurnedBytes, kKeptRowBytes = (kHeadDim + kHeadDimV) * 2;
constexpr int kAppendBytes = kKeptAt + SERVING_FEW_NEW_KEYS * kKeptRowBytes;

// With a warpgroup that loads only merging takes memory.
constexpr int kWorkBytes = kNarrow ? kNarrowBytes : kAppends ? kAppendBytes : kLoadsApart ? kMergeBytes : kWideBytes;
static_assert(kMergeBytes <= kWorkBytes, "what merging takes lies where the workers' memory is");
constexpr int kPlanBytes = kThreads * 12;
static_assert(kOnePart || kPlanBytes <= kWorkBytes, "the costs of sequences lie where the workers' memory will");

// A partial result: O of the tile, unnormalised, then each row's maximum (of scores times log2 e) and sum.
constexpr int kPartialFloats = kRows * (kHeadDimV + 2);

} // namespace cfg
