// The configuration of flash_backward: the macros that kjit writes in front of the source (KJIT_<field>) become typed
// constants, and their values are checked. No other file reads these macros.
#pragma once
#include <kjit/shared_tile.cuh>
#include <kjit/types.cuh>

#include "flash_backward/params.h"

#if !defined(KJIT_dtype)
#error "KJIT_dtype is not defined: element type, 5 (fp16) or 15 (bf16)"
#elif !defined(KJIT_head_dim) || !defined(KJIT_head_dim_v)
#error "KJIT_head_dim or KJIT_head_dim_v is not defined: columns of Q and K, columns of V and O"
#elif !defined(KJIT_causal)
#error "KJIT_causal is not defined: 0 or 1"
#elif !defined(KJIT_pass)
#error "KJIT_pass is not defined: what is computed: 1 dq, 2 dk, 4 dv, 6 dk and dv, 8 delta alone, 64 what scores read"
#elif !defined(KJIT_tile_m) || !defined(KJIT_tile_n)
#error "KJIT_tile_m or KJIT_tile_n is not defined: query rows and key rows of a step"
#elif !defined(KJIT_n_warps) || !defined(KJIT_stages)
#error "KJIT_n_warps or KJIT_stages is not defined: warps per block, tiles of a step's rows in shared memory"
#elif !defined(KJIT_shared_bytes) || !defined(KJIT_threads)
#error "KJIT_shared_bytes or KJIT_threads is not defined: what the host launches a block with"
#endif

using namespace kjit;

namespace cfg {

using Element = ElementOf<KJIT_dtype>::type;

constexpr int kHeadDim = KJIT_head_dim;
constexpr int kHeadDimV = KJIT_head_dim_v;
constexpr bool kCausal = KJIT_causal;
constexpr int kPass = KJIT_pass;
constexpr int kWarps = KJIT_n_warps;
constexpr int kStages = KJIT_stages;
constexpr int kThreads = kWarps * kLanesPerWarp;

constexpr bool kComputesDq = kPass & FLASH_BACKWARD_DQ;
constexpr bool kComputesDk = kPass & FLASH_BACKWARD_DK;
constexpr bool kComputesDv = kPass & FLASH_BACKWARD_DV;
constexpr bool kComputesRead = kPass & FLASH_BACKWARD_READ;
constexpr bool kComputesDelta = kPass & (FLASH_BACKWARD_DQ | FLASH_BACKWARD_DELTA | FLASH_BACKWARD_READ);
constexpr bool kNeedsDs = kComputesDq || kComputesDk;

// A block owns the rows of one tile and steps over tiles of the other side: a pass for dq, or for what scores read,
// owns queries and steps over keys, a pass for dk and dv owns keys and steps over queries.
constexpr bool kOwnsKeys = kComputesDk || kComputesDv;
constexpr int kOwnRows = kOwnsKeys ? KJIT_tile_n : KJIT_tile_m;
constexpr int kStepRows = kOwnsKeys ? KJIT_tile_m : KJIT_tile_n;
constexpr int kRowsPerWarp = kOwnRows / kWarps;
constexpr int kRowTiles = kRowsPerWarp / 16; // m16 tiles of a warp
constexpr int kStepTiles = kStepRows / 16;   // 16-row tiles of a step

// Tiles are as wide as 16-column slices make them; the columns that a head does not have are zeros in shared memory and
// are neither read from nor written to global memory.
constexpr int kSlices = ceil_div(kHeadDim, 16);
constexpr int kValueSlices = ceil_div(kHeadDimV, 16);

static_assert(kPass == 1 || kPass == 2 || kPass == 4 || kPass == 6 || kPass == 8 || kPass == 64,
              "pass: 1, 2, 4, 6, 8 or 64");
static_assert(kHeadDim % 8 == 0 && kHeadDim >= 8 && kHeadDim <= 256, "head_dim: a multiple of 8 up to 256");
static_assert(kHeadDimV % 8 == 0 && kHeadDimV >= 8 && kHeadDimV <= 256, "head_dim_v: a multiple of 8 up to 256");
static_assert(kWarps == 1 || kWarps == 2 || kWarps == 4 || kWarps == 8, "n_warps: 1, 2, 4 or 8");
static_assert(kOwnRows % (16 * kWarps) == 0 && kOwnRows <= 256, "the owned tile: a multiple of 16 * n_warps up to 256");
static_assert(kStepRows % 16 == 0 && kStepRows >= 16 && kStepRows <= 256, "the other tile: a multiple of 16 up to 256");
static_assert(kStages == 1 || kStages == 2, "stages: 1 or 2");

// Own and step tiles, of head_dim and of head_dim_v columns: Q, dO, K, V for dq; K, V, Q, dO for dk and dv.
using OwnTile = SharedTile<kOwnRows, 16 * kSlices, true>;
using OwnValueTile = SharedTile<kOwnRows, 16 * kValueSlices, true>;
using StepTile = SharedTile<kStepRows, 16 * kSlices, true>;
using StepValueTile = SharedTile<kStepRows, 16 * kValueSlices, true>;

// With queries as the step, a stage also has LSE and delta of each query, 8 bytes together.
constexpr int kStatisticsBytes = kOwnsKeys ? 8 * kStepRows : 0;
constexpr int kOwnBytes = OwnTile::kBytes + OwnValueTile::kBytes;
constexpr int kStageBytes = StepTile::kBytes + StepValueTile::kBytes + kStatisticsBytes;
constexpr int kSharedBytes = kPass == FLASH_BACKWARD_DELTA ? 0 : kOwnBytes + kStages * kStageBytes;

// Were the host to reckon with less, the last words would lie outside.
static_assert(kSharedBytes == KJIT_shared_bytes, "shared_bytes: what the host asks for is what is used");
static_assert(kThreads == KJIT_threads, "threads: the host launches as many as the warps have");

} // namespace cfg
