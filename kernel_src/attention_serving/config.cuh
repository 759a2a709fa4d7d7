// The configuration of attention_serving: the macros that kjit writes in front of the source (KJIT_<field>) become
// typed constants, and their values are checked. No other file reads these macros.
#pragma once
#include <kjit/shared_tile.cuh>
#include <kjit/types.cuh>

#include "attention_serving/byte_tile.cuh"
#include "attention_serving/layout.h"
#include "attention_serving/params.h"

#if !defined(KJIT_pass) || !defined(KJIT_dtype)
#error "KJIT_pass or KJIT_dtype is not defined: 0 (attend), 1 (plan) or 2 (append); 5 (fp16) or 15 (bf16)"
#elif !defined(KJIT_head_dim) || !defined(KJIT_head_dim_v)
#error "KJIT_head_dim or KJIT_head_dim_v is not defined: columns of Q and K, columns of V and O"
#elif !defined(KJIT_cache)
#error "KJIT_cache is not defined: element type of K and V, that of Q or 24 (e4m3)"
#elif !defined(KJIT_rows) || !defined(KJIT_keys) || !defined(KJIT_warps)
#error "KJIT_rows, KJIT_keys or KJIT_warps is not defined: packed query rows and keys of a tile, warps of a block"
#elif !defined(KJIT_stages) || !defined(KJIT_blocks_per_sm)
#error "KJIT_stages or KJIT_blocks_per_sm is not defined: tiles of K and V in shared memory, blocks that share an SM"
#elif !defined(KJIT_paged) || !defined(KJIT_softcap)
#error "KJIT_paged or KJIT_softcap is not defined: 0 or 1"
#elif !defined(KJIT_shared_bytes) || !defined(KJIT_threads)
#error "KJIT_shared_bytes or KJIT_threads is not defined: what the host launches a block with"
#endif

using namespace kjit;

namespace cfg {

using Element = ElementOf<KJIT_dtype>::type;

enum Pass { kAttend = 0, kPlan = 1, kAppend = 2 };
constexpr int kPass = KJIT_pass;
constexpr int kHeadDim = KJIT_head_dim;
constexpr int kHeadDimV = KJIT_head_dim_v;
constexpr int kRows = KJIT_rows;
constexpr bool kAnyRows = kPass == kPlan; // a tile's rows are an argument
constexpr int kKeys = KJIT_keys;
constexpr int kWarps = KJIT_warps;
constexpr int kStages = KJIT_stages;
constexpr int kBlocksPerSm = KJIT_blocks_per_sm;
constexpr bool kNarrow = KJIT_cache == 24; // K and V of 8 bits an element, else of 16
constexpr int kCacheBytes = kNarrow ? 1 : 2;
constexpr int kCacheElements = kChunkBytes / kCacheBytes; // of a chunk
constexpr bool kPaged = KJIT_paged;
constexpr bool kSoftcap = KJIT_softcap;

constexpr int kPlanThreads = SERVING_PLAN_THREADS;
constexpr int kThreads = kPass == kPlan ? kPlanThreads : kWarps * kLanesPerWarp;
constexpr int kWorkers = kThreads;            // that merge partial results
constexpr int kRowWarps = kRows / 16;         // warps along the rows: each has 16
constexpr int kKeyWarps = kWarps / kRowWarps; // warps along the keys of a tile
constexpr int kWarpKeys = kKeys / kKeyWarps;  // keys of a warp in each tile
constexpr int kKeyTiles = kWarpKeys / 16;     // the same in 16s

// Tiles are as wide as 16-column slices make them; the columns that a head does not have are zeros in shared memory.
constexpr int kQueryKeySlices = ceil_div(kHeadDim, 16);
constexpr int kValueSlices = ceil_div(kHeadDimV, 16);
constexpr int kOutputTiles8 = kHeadDimV / 8;

// With K and V of 8 bits, where the A operands of Q lie: in a thread's registers, unless with O they would take more
// than half of all, or in shared memory, 64 columns after 64.
constexpr bool kQueryShared = kNarrow && kHeadDim + 2 * kHeadDimV > SERVING_NARROW_REGISTER_COLUMNS;

static_assert(KJIT_cache == KJIT_dtype || KJIT_cache == 24, "cache: dtype, or 24");
static_assert(kHeadDim % kCacheElements == 0 && kHeadDimV % kCacheElements == 0, "heads: whole chunks of the cache");
static_assert(kPass >= kAttend && kPass <= kAppend, "pass: 0, 1 or 2");
static_assert(kHeadDim % 8 == 0 && kHeadDim >= 8 && kHeadDim <= 256, "head_dim: a multiple of 8 up to 256");
static_assert(kHeadDimV % 8 == 0 && kHeadDimV >= 8 && kHeadDimV <= 256, "head_dim_v: a multiple of 8 up to 256");
static_assert(kRows % 16 == 0 && kRows >= 16 && kRows <= 128, "rows: a multiple of 16 up to 128");
static_assert(kWarps % kRowWarps == 0, "warps: a multiple of rows / 16");
static_assert(kKeys % (16 * kKeyWarps) == 0, "keys: a multiple of 16 * warps / (rows / 16)");
static_assert(kStages >= 2 && kStages <= 4, "stages: 2 to 4");

using QTile = SharedTile<kRows, 16 * kQueryKeySlices, true>;
using OTile = SharedTile<kRows, 16 * kValueSlices, true>; // in 16 bits, where the tiles were

// Tiles of K and V, by the bytes of an element.
template <int kElementBytes> struct CacheTiles {
  using K = SharedTile<kKeys, 16 * kQueryKeySlices, true>;
  using V = SharedTile<kKeys, 16 * kValueSlices, true>;
};
template <> struct CacheTiles<1> {
  using K = ByteTile<kKeys, kHeadDim>;
  using V = ByteTile<kKeys, kHeadDimV>;
};
using KTile = CacheTiles<kCacheBytes>::K;
using VTile = CacheTiles<kCacheBytes>::V;

// Shared memory: Q, then `kStages` times K and V; O of every warp along the keys, in fp32, takes their place when a
// tile ends. Behind them each row's maximum and sum, for each warp along the keys; with pages two tables of rows; a
// word.
constexpr int kStageBytes = KTile::kBytes + VTile::kBytes;
constexpr int kQueryBytes = kQueryShared ? kRows * ceil_div(kHeadDim, 64) * 64 * 2 : QTile::kBytes;
constexpr int kTilesBytes = kQueryBytes + kStages * kStageBytes;
constexpr int kOutputStride = 16 * kValueSlices + 8; // floats; the 8 spread neighbouring rows over the banks
constexpr int kOutputBytes = kKeyWarps * kRows * kOutputStride * 4;
constexpr int kStatisticsAt = kTilesBytes > kOutputBytes ? kTilesBytes : kOutputBytes;
constexpr int kRowTableAt = kStatisticsAt + kKeyWarps * kRows * 2 * 4;
constexpr int kRowTableBytes = kPaged ? 2 * kKeys * 16 : 0;
constexpr int kWordAt = kRowTableAt + kRowTableBytes;
constexpr int kPlanBytes = kThreads * 12; // the costs of a chunk of sequences, before the first tile
constexpr int kScheduleBytes = kThreads * 8 * (1 + SERVING_PLAN_KEPT) + SERVING_PLAN_SUMS_BYTES; // schedule.cuh
constexpr int kSharedBytes = kPass == kAttend ? kWordAt + 16 : kPass == kPlan ? kScheduleBytes : 0;

static_assert(kPass != kAttend || kPlanBytes <= kTilesBytes, "the plan lies where the tiles will");

static_assert(kSharedBytes == KJIT_shared_bytes, "shared_bytes: what the host asks for is what is used");
static_assert(kThreads == KJIT_threads, "threads: the host launches as many as the warps have");

// A partial result: O of the tile, unnormalised, then each row's maximum (of scores times log2 e) and sum.
constexpr int kPartialFloats = kRows * (kHeadDimV + 2);

KJIT_DEVICE void sync_workers() {
  __syncthreads();
}

} // namespace cfg
