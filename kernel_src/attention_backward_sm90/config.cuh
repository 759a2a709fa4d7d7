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
#error "KJIT_pass is not defined: what to compute: 1 dq, 2 dk, 4 dv, 6 dk and dv, 7 all, 8 delta, 16 dq from sums"
#elif !defined(KJIT_consumers) || !defined(KJIT_tile)
#error "KJIT_consumers or KJIT_tile is not defined: warpgroups of 64 own rows, rows of a step"
#elif !defined(KJIT_stages) || !defined(KJIT_value_stages)
#error "KJIT_stages or KJIT_value_stages is not defined: tiles of a step in shared memory"
#elif !defined(KJIT_pipelined)
#error "KJIT_pipelined is not defined: 0 or 1"
#elif !defined(KJIT_direct)
#error "KJIT_direct is not defined: 0 or 1"
#elif !defined(KJIT_staggered)
#error "KJIT_staggered is not defined: 0 or 1"
#elif !defined(KJIT_persistent) || !defined(KJIT_stores)
#error "KJIT_persistent or KJIT_stores is not defined: 0 or 1"
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
// And of a consumer's half of dQ's columns, where it is not as wide as one of these.
#if KJIT_pass == 7 && KJIT_tile == 64 && KJIT_head_dim == 64 && KJIT_head_dim_v != 32
BACKWARD_SM90_WGMMA(32)
#endif

// And where consumers share keys: of 32 queries, and of half of the columns.
#if KJIT_pass == 7 && KJIT_head_dim > 128
BACKWARD_SM90_WGMMA(32)
BACKWARD_SM90_WGMMA(128)
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
constexpr bool kDirect = KJIT_direct;
constexpr bool kStaggered = KJIT_staggered;
constexpr bool kPersistent = KJIT_persistent;
constexpr bool kStores = KJIT_stores;

// Three kernels together compute all gradients by five products a pair of tiles: delta and zeros (BACKWARD_SM90_BEGIN),
// dk and dv with dq summed in fp32 in global memory (BACKWARD_SM90_SUM), dq from these sums (BACKWARD_SM90_END).
constexpr bool kSumsDq = kPass == BACKWARD_SM90_SUM;
constexpr bool kIsBegin = kPass == BACKWARD_SM90_BEGIN;
constexpr bool kIsEnd = kPass == BACKWARD_SM90_END;

constexpr bool kComputesDq = kPass == FLASH_BACKWARD_DQ; // in registers
constexpr bool kComputesDk = kPass & FLASH_BACKWARD_DK;
constexpr bool kComputesDv = kPass & FLASH_BACKWARD_DV;
constexpr bool kNeedsDs = kComputesDq || kComputesDk;
constexpr bool kOwnsKeys = kComputesDk || kComputesDv;

// Of heads above 128 columns a thread cannot hold dk and dv of its rows: the consumers of pass 7 share 64 keys
// (sharing.cuh). Otherwise each has 64 rows of its own.
constexpr bool kShares = kSumsDq && kHeadDim > 128;
// The two of pass 6 have the same 64 keys, too, where both head sizes are above 128 (splitting.cuh).
constexpr bool kSplits = kPass == 6 && kHeadDim > 128 && kHeadDimV > 128;
constexpr int kGroupRows = BACKWARD_SM90_GROUP_ROWS;
constexpr int kOwnGroups = kShares || kSplits ? 1 : kConsumers;
constexpr int kOwnRows = kGroupRows * kOwnGroups;
constexpr int kStepRows = KJIT_tile;

// What one consumer computes: scores of so many rows of a step, sums of so many columns.
constexpr int kScoreRows = kShares ? kStepRows / 2 : kStepRows;
constexpr int kSumColumns = kShares ? 128 : kHeadDim;
constexpr int kSumValueColumns = kShares ? 128 : kHeadDimV;
constexpr int kThreads = kThreadsPerWarpgroup * (kIsBegin || kIsEnd ? 1 : kConsumers + 1);

// Registers of each thread after setmaxnreg. A block starts with the registers that ptxas gives each of its threads,
// 168 with three warpgroups and 128 with four; the warpgroups together may have no more than that. Of an attention
// variant the producer's warps evaluate its mask, which takes more than the 24 that TMA loads do.
#ifdef KJIT_variant
constexpr bool kVariant = true;
#else
constexpr bool kVariant = false;
#endif
constexpr int kProducerRegisters = kConsumers == 1 ? 56 : kConsumers == 3 ? 32 : kVariant ? 40 : 24;
constexpr int kConsumerRegisters = kConsumers == 1 ? 256 : kConsumers == 3 ? 160 : kVariant ? 232 : 240;

static_assert(kPass == 1 || kPass == 2 || kPass == 4 || kPass == 6 || kSumsDq || kIsBegin || kIsEnd,
              "pass: 1, 2, 4, 6, 7, 8 or 16");
static_assert(kHeadDim % 8 == 0 && kHeadDim >= 8 && kHeadDim <= 256, "head_dim: a multiple of 8 up to 256");
static_assert(kHeadDimV % 8 == 0 && kHeadDimV >= 8 && kHeadDimV <= 256, "head_dim_v: a multiple of 8 up to 256");
static_assert(kConsumers >= 1 && kConsumers <= 3, "consumers: 1 to 3");
static_assert(kStepRows % 16 == 0 && kStepRows >= 16 && kStepRows <= 256, "tile: a multiple of 16 up to 256");
static_assert(kStages >= 1 && kStages <= 4 && kValueStages >= 1 && kValueStages <= 4, "stages: 1 to 4");
static_assert(!kPipelined || kStages >= 2, "stages: 2 where a step's products run beside the next one's");
static_assert(!kSplits || (kConsumers == 2 && kPipelined), "pass 6, head sizes above 128: two consumers, pipelined");
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

// Where dq is summed: how the two consumers share the product dS K of a step, and which tile of sums that gives. With
// steps of 128 queries each takes 64 of them and all columns; with 64 queries each takes half of the columns, whole
// bands of them where there are two.
constexpr bool kSumsRows = kStepRows == 2 * kGroupRows;
constexpr int kDqColumns = BACKWARD_SM90_DQ_COLUMNS(kHeadDim, kStepRows);
constexpr int kDqBytes = kGroupRows * kDqColumns * 4;                   // of a consumer, in fp32
constexpr int kSumBytes = BACKWARD_SM90_SUM_BYTES(kHeadDim, kStepRows); // of 64 queries
constexpr int kPBytes = kSplits ? kGroupRows * kStepRows * 2 : 0;       // P from one consumer to the other
// Is dQ of a tile's last step multiplied in the next tile's first one? For that the next tile's keys have a buffer of
// their own, and dk and dv share a consumer's band of one buffer of dS.
constexpr bool kCarries = kPersistent && kStaggered && kSumsRows && kGroupBytes + kGroupValueBytes <= kStepBandBytes;
constexpr int kOwnStages = kCarries ? 2 : 1; // tiles of own rows, of head_dim columns
constexpr int kDsStages = 2;
constexpr int kDsBytes = kSumsDq ? 2 * kStepBandBytes : 0; // dS of 128 keys in two bands; or P and dS of 64
static_assert(!kSumsDq || (kConsumers == 2 && (kSumsRows || kStepRows == kGroupRows)),
              "pass 7: two consumers, steps of 64 or 128 queries");
static_assert(!kSumsDq || kSumsRows || kHeadDim >= 64, "pass 7: with steps of 64 queries head_dim is 64 or more");
static_assert(!kPersistent || (kSumsDq && !kShares && !kDirect && (kSumsRows || kHeadDim > 64)),
              "persistent: pass 7, not direct, and with steps of 64 queries head_dim is above 64 and at most 128");
static_assert(!kShares || (kDirect && bands(kHeadDim) == 4 && bands(kHeadDimV) == 4 && !kSumsRows),
              "pass 7: above 128 columns both head sizes are above 192, with steps of 64 queries, and direct");

} // namespace cfg
