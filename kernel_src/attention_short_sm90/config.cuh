// The configuration of attention_short_sm90: the macros that kjit writes in front of the source (KJIT_<field>) become
// typed constants, and their values are checked. No other file reads these macros.
#pragma once
#include <kjit/ptx/wgmma.cuh>
#include <kjit/types.cuh>

#include "attention_short_sm90/layout.h"

#if !defined(KJIT_dtype)
#error "KJIT_dtype is not defined: element type, 5 (fp16) or 15 (bf16)"
#elif !defined(KJIT_head_dim) || !defined(KJIT_head_dim_v)
#error "KJIT_head_dim or KJIT_head_dim_v is not defined: columns of Q and K, columns of V and O"
#elif !defined(KJIT_causal) || !defined(KJIT_tile_n)
#error "KJIT_causal or KJIT_tile_n is not defined: 0 or 1; most keys of a head"
#elif !defined(KJIT_consumers) || !defined(KJIT_blocks_per_sm)
#error "KJIT_consumers or KJIT_blocks_per_sm is not defined: warpgroups of a block, blocks of an SM"
#elif !defined(KJIT_stages) || !defined(KJIT_q_buffers)
#error "KJIT_stages or KJIT_q_buffers is not defined: K and V of heads, Q tiles of a consumer in shared memory"
#elif !defined(KJIT_shared_bytes) || !defined(KJIT_threads)
#error "KJIT_shared_bytes or KJIT_threads is not defined: what the host launches a block with"
#endif

// Columns of S that one product makes. ptxas refuses products of more columns where it starts from 128 registers, even
// if setmaxnreg gives the thread more.
#if KJIT_tile_n <= 128
#define KJIT_SCORE_COLUMNS KJIT_tile_n
#elif KJIT_tile_n == 144
#define KJIT_SCORE_COLUMNS 72
#elif KJIT_tile_n == 160
#define KJIT_SCORE_COLUMNS 80
#elif KJIT_tile_n == 176
#define KJIT_SCORE_COLUMNS 88
#elif KJIT_tile_n == 192
#define KJIT_SCORE_COLUMNS 96
#elif KJIT_tile_n == 208
#define KJIT_SCORE_COLUMNS 104
#elif KJIT_tile_n == 224
#define KJIT_SCORE_COLUMNS 112
#elif KJIT_tile_n == 240
#define KJIT_SCORE_COLUMNS 120
#elif KJIT_tile_n == 256
#define KJIT_SCORE_COLUMNS 128
#else
#error "tile_n: a multiple of 16 up to 256"
#endif

#if KJIT_dtype == 15
KJIT_WGMMA(KJIT_SCORE_COLUMNS, Bf16)
#if KJIT_head_dim_v != KJIT_SCORE_COLUMNS
KJIT_WGMMA(KJIT_head_dim_v, Bf16)
#endif
#elif KJIT_dtype == 5
KJIT_WGMMA(KJIT_SCORE_COLUMNS, Fp16)
#if KJIT_head_dim_v != KJIT_SCORE_COLUMNS
KJIT_WGMMA(KJIT_head_dim_v, Fp16)
#endif
#endif

using namespace kjit;

namespace cfg {

using Element = ElementOf<KJIT_dtype>::type;

constexpr int kHeadDim = KJIT_head_dim;
constexpr int kHeadDimV = KJIT_head_dim_v;
constexpr bool kCausal = KJIT_causal;
constexpr int kKeyRows = KJIT_tile_n;
constexpr int kScoreColumns = KJIT_SCORE_COLUMNS;
constexpr int kConsumers = KJIT_consumers;
constexpr int kStages = KJIT_stages;
constexpr int kQueryBuffers = KJIT_q_buffers;
constexpr int kBlocksPerSm = KJIT_blocks_per_sm;

constexpr int kRows = SHORT_ROWS;
// Three consumers take registers of a producer that is a whole warpgroup, because a fourth of the SM would hold four
// warps either way.
constexpr bool kMovesRegisters = kConsumers == SHORT_CONSUMERS_WITH_GROUP;
constexpr int kThreads =
    kThreadsPerWarpgroup * kConsumers + (kMovesRegisters ? kThreadsPerWarpgroup : SHORT_PRODUCER_THREADS);

static_assert(kHeadDim % 8 == 0 && kHeadDim >= 8 && kHeadDim <= 256, "head_dim: a multiple of 8 up to 256");
static_assert(kHeadDimV % 8 == 0 && kHeadDimV >= 8 && kHeadDimV <= 256, "head_dim_v: a multiple of 8 up to 256");
static_assert(kKeyRows % 16 == 0 && kKeyRows >= 16 && kKeyRows <= 256, "tile_n: a multiple of 16 up to 256");
static_assert(kConsumers >= 1 && kConsumers <= 4, "consumers: 1 to 4");
static_assert(kStages >= 1 && kStages <= 8, "stages: 1 to 8");
static_assert(kQueryBuffers >= 1 && kQueryBuffers <= 8, "q_buffers: 1 to 8");
static_assert(kBlocksPerSm >= 1 && kBlocksPerSm <= 4, "blocks_per_sm: 1 to 4");
static_assert(kThreads == KJIT_threads, "threads: the host launches as many as the roles have");
static_assert(kThreadsPerWarpgroup == SHORT_GROUP_THREADS, "the host's warpgroups are the kernel's");

// A tile lies in shared memory as bands of 64 columns, [band][rows][64], each with rows of 128 bytes that TMA swizzles.
// TMA fills columns that the head does not have, and rows beyond the sequence, with zeros.
__device__ constexpr int bands(int columns) {
  return (columns + SHORT_BAND_COLUMNS - 1) / SHORT_BAND_COLUMNS;
}
constexpr int kRowBytes = SHORT_ROW_BYTES;
constexpr int kBandBytes = kRows * kRowBytes; // a band of a tile of Q or O
constexpr int kQueryLoadBytes = kBandBytes * bands(kHeadDim);
// A tile of Q, through whose memory O is stored.
constexpr int kQueryBytes = kBandBytes * (bands(kHeadDim) > bands(kHeadDimV) ? bands(kHeadDim) : bands(kHeadDimV));
constexpr int kKeyBytes = kKeyRows * kRowBytes * bands(kHeadDim);
constexpr int kValueBytes = kKeyRows * kRowBytes * bands(kHeadDimV);

} // namespace cfg
