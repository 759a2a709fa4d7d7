// The configuration of attention_decode_sm90: the macros that kjit writes in front of the source (KJIT_<field>) become
// typed constants, and their values are checked. No other file reads these macros.
#pragma once
#include <kjit/ptx/wgmma.cuh>
#include <kjit/types.cuh>

#include "attention_decode_sm90/layout.h"

#if !defined(KJIT_dtype)
#error "KJIT_dtype is not defined: element type, 5 (fp16) or 15 (bf16)"
#elif !defined(KJIT_head_dim) || !defined(KJIT_head_dim_v)
#error "KJIT_head_dim or KJIT_head_dim_v is not defined: columns of Q and K, columns of V and O"
#elif !defined(KJIT_causal)
#error "KJIT_causal is not defined: 0 or 1"
#elif !defined(KJIT_rows)
#error "KJIT_rows is not defined: query rows of a tile, 16, 32, 48 or 64"
#elif !defined(KJIT_tile_n) || !defined(KJIT_stages)
#error "KJIT_tile_n or KJIT_stages is not defined: key rows of a block, blocks in shared memory"
#elif !defined(KJIT_blocks_per_sm)
#error "KJIT_blocks_per_sm is not defined: blocks of threads that an SM runs at the same time, 1 to 4"
#elif !defined(KJIT_shared_bytes) || !defined(KJIT_threads)
#error "KJIT_shared_bytes or KJIT_threads is not defined: what the host launches a block with"
#endif

#if KJIT_dtype == 15
KJIT_WGMMA(KJIT_tile_n, Bf16)
#if KJIT_head_dim_v != KJIT_tile_n
KJIT_WGMMA(KJIT_head_dim_v, Bf16)
#endif
#elif KJIT_dtype == 5
KJIT_WGMMA(KJIT_tile_n, Fp16)
#if KJIT_head_dim_v != KJIT_tile_n
KJIT_WGMMA(KJIT_head_dim_v, Fp16)
#endif
#endif

using namespace kjit;

namespace cfg {

using Element = ElementOf<KJIT_dtype>::type;

constexpr int kHeadDim = KJIT_head_dim;
constexpr int kHeadDimV = KJIT_head_dim_v;
constexpr bool kCausal = KJIT_causal;
constexpr int kRows = KJIT_rows;
constexpr int kKeyRows = KJIT_tile_n;
constexpr int kStages = KJIT_stages;
constexpr int kBlocksPerSm = KJIT_blocks_per_sm;
constexpr int kThreads = kThreadsPerWarpgroup;

// Q as the A operand of the first product: in registers where they suffice, otherwise in shared memory.
constexpr bool kQueryInRegisters = kHeadDim <= DECODE_REGISTER_HEAD_DIM;

static_assert(kHeadDim % 8 == 0 && kHeadDim >= 8 && kHeadDim <= 256, "head_dim: a multiple of 8 up to 256");
static_assert(kHeadDimV % 8 == 0 && kHeadDimV >= 8 && kHeadDimV <= 256, "head_dim_v: a multiple of 8 up to 256");
static_assert(kRows % 16 == 0 && kRows >= 16 && kRows <= 64, "rows: a multiple of 16 up to 64");
static_assert(kKeyRows % 16 == 0 && kKeyRows <= 256, "tile_n: a multiple of 16 up to 256");
static_assert(kStages >= 2 && kStages <= 16, "stages: 2 to 16");
static_assert(kBlocksPerSm >= 1 && kBlocksPerSm <= 4, "blocks_per_sm: 1 to 4");
static_assert(kThreads == KJIT_threads, "threads: the host launches one warpgroup");

// A tile lies in shared memory as bands of 64 columns, [band][rows][64], each with rows of 128 bytes that TMA swizzles.
// TMA fills columns that the head does not have with zeros; they are multiplied only up to the next multiple of 16.
__device__ constexpr int bands(int columns) {
  return (columns + DECODE_BAND_COLUMNS - 1) / DECODE_BAND_COLUMNS;
}
constexpr int kRowBytes = DECODE_ROW_BYTES;
constexpr int kQueryBytes = kQueryInRegisters ? 0 : DECODE_M * kRowBytes * bands(kHeadDim);
constexpr int kKeyBytes = kKeyRows * kRowBytes * bands(kHeadDim);
constexpr int kValueBytes = kKeyRows * kRowBytes * bands(kHeadDimV);

} // namespace cfg
