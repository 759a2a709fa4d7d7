// The configuration of attention_backward_sm90: the macros that kjit writes in front of the source (KJIT_<field>)
// become typed constants, and their values are checked. No other file reads these macros.
#pragma once
#include <kjit/ptx/wgmma.cuh>
#include <kjit/types.cuh>

#include "attention_backward_sm90/layout.h"
#include "attention_backward_sm90/params.h"

#if !defined(KJIT_dtype)
#error "KJIT_dtype is not defined: element type, 5 (fp16) or 15 (bf16)"
#elif !defined(KJIT_head_dim) || !defined(KJIT_head_dim_v)
#error "KJIT_head_dim or KJIT_head_dim_v is not defined: columns of Q and K, columns of V and O"
#elif !defined(KJIT_causal)
#error "KJIT_causal is not defined: 0 or 1"
#elif !defined(KJIT_pass)
#error "KJIT_pass is not defined: the gradients to compute: 1 dq, 2 dk, 4 dv, 6 dk and dv"
#elif !defined(KJIT_consumers) || !defined(KJIT_tile)
#error "KJIT_consumers or KJIT_tile is not defined: warpgroups of 64 own rows, rows of a step"
#elif !defined(KJIT_stages) || !defined(KJIT_value_stages)
#error "KJIT_stages or KJIT_value_stages is not defined: tiles of a step in shared memory"
#elif !defined(KJIT_pipelined)
#error "KJIT_pipelined is not defined: 0 or 1"
#elif !defined(KJIT_shared_bytes) || !defined(KJIT_threads)
#error "KJIT_shared_bytes or KJIT_threads is not defined: what the host launches a block with"
#endif

// A wgmma for each width: of S and dP, of dq or dk, of dv.
#if KJIT_dtype == 15
#define BACKWARD_SM90_WGMMA(N) KJIT_WGMMA(N, Bf16)
#else
#define BACKWARD_SM90_WGMMA(N) KJIT_WGMMA(N, Fp16)
#endif
BACKWARD_SM90_WGMMA(KJIT_tile)
#if KJIT_head_dim != KJIT_tile
BACKWARD_SM90_WGMMA(KJIT_head_dim)
#endif
#if KJIT_head_dim_v != KJIT_tile && KJIT_head_dim_v != KJIT_head_dim
BACKWARD_SM90_WGMMA(KJIT_head_dim_v)
#endif

using namespace kjit;

namespace cfg {

using Element = ElementOf<KJIT_dtype>::type;

constexpr int kHeadDim = KJIT_head_dim;
constexpr int kHeadDimV = KJIT_head_dim_v;
constexpr bool kCausal = KJIT_causal;
constexpr int kPass = KJIT_pass;
constexpr int kConsumers = KJIT_consumers;
constexpr int kStages = KJIT_stages;
constexpr int kValueStages = KJIT_value_stages;
constexpr bool kPipelined = KJIT_pipelined;

constexpr bool kComputesDq = kPass & FLASH_BACKWARD_DQ;
constexpr bool kComputesDk = kPass & FLASH_BACKWARD_DK;
constexpr bool kComputesDv = kPass & FLASH_BACKWARD_DV;
constexpr bool kNeedsDs = kComputesDq || kComputesDk;
constexpr bool kOwnsKeys = kComputesDk || kComputesDv;

constexpr int kGroupRows = BACKWARD_SM90_GROUP_ROWS;
constexpr int kOwnRows = kGroupRows * kConsumers;
constexpr int kStepRows = KJIT_tile;
constexpr int kThreads = kThreadsPerWarpgroup * (kConsumers + 1);

// Registers of each thread after setmaxnreg. A block starts with the registers that ptxas gives each of its threads,
// 168 with three warpgroups and 128 with four; the warpgroups together may have no more than that.
constexpr int kProducerRegisters = kConsumers == 1 ? 56 : kConsumers == 2 ? 24 : 32;
constexpr int kConsumerRegisters = kConsumers == 1 ? 256 : kConsumers == 2 ? 240 : 160;

static_assert(kPass == 1 || kPass == 2 || kPass == 4 || kPass == 6, "pass: 1, 2, 4 or 6");
static_assert(kHeadDim % 8 == 0 && kHeadDim >= 8 && kHeadDim <= 256, "head_dim: a multiple of 8 up to 256");
static_assert(kHeadDimV % 8 == 0 && kHeadDimV >= 8 && kHeadDimV <= 256, "head_dim_v: a multiple of 8 up to 256");
static_assert(kConsumers >= 1 && kConsumers <= 3, "consumers: 1 to 3");
static_assert(kStepRows % 16 == 0 && kStepRows >= 16 && kStepRows <= 256, "tile: a multiple of 16 up to 256");
static_assert(kStages >= 1 && kStages <= 4 && kValueStages >= 1 && kValueStages <= 4, "stages: 1 to 4");
static_assert(!kPipelined || kStages >= 2, "stages: 2 where a step's products run beside the next one's");
static_assert(!kPipelined || !kComputesDv || kValueStages >= 2, "value_stages: likewise for dv");
static_assert(kThreads == KJIT_threads, "threads: the host launches as many as the roles have");
static_assert(kThreadsPerWarpgroup == BACKWARD_SM90_GROUP_THREADS, "the host's warpgroups are the kernel's");

// A tile lies in shared memory as bands of 64 columns, [band][rows][64], each with rows of 128 bytes that TMA swizzles.
// TMA fills columns that the head does not have with zeros; they are multiplied only up to the next multiple of 16.
constexpr int kRowBytes = BACKWARD_SM90_ROW_BYTES;
__device__ constexpr int bands(int columns) {
  return (columns + BACKWARD_SM90_BAND_COLUMNS - 1) / BACKWARD_SM90_BAND_COLUMNS;
}
constexpr int kGroupBandBytes = kGroupRows * kRowBytes;
constexpr int kGroupBytes = kGroupBandBytes * bands(kHeadDim); // own rows of one consumer
constexpr int kGroupValueBytes = kGroupBandBytes * bands(kHeadDimV);
constexpr int kStepBandBytes = kStepRows * kRowBytes;
constexpr int kStepBytes = kStepBandBytes * bands(kHeadDim);
constexpr int kStepValueBytes = kStepBandBytes * bands(kHeadDimV);
constexpr int kStatisticsBytes = kOwnsKeys ? BACKWARD_SM90_QUERY_BYTES * kStepRows : 0;

} // namespace cfg
