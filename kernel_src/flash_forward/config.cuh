// The configuration of flash_forward: the macros that kjit writes in front of the source (KJIT_<field>) become typed
// constants, and their values are checked. No other file reads these macros.
#pragma once
#include <kjit/shared_tile.cuh>
#include <kjit/types.cuh>

#if !defined(KJIT_dtype)
#error "KJIT_dtype is not defined: element type, 5 (fp16) or 15 (bf16)"
#elif !defined(KJIT_d_head)
#error "KJIT_d_head is not defined: head size"
#elif !defined(KJIT_B_r) || !defined(KJIT_B_c)
#error "KJIT_B_r or KJIT_B_c is not defined: query rows per block, key rows per step"
#elif !defined(KJIT_n_warps)
#error "KJIT_n_warps is not defined: warps per block"
#elif !defined(KJIT_async_copy) || !defined(KJIT_eager_load_blocks) || !defined(KJIT_swizzled)
#error "KJIT_async_copy, KJIT_eager_load_blocks or KJIT_swizzled is not defined: 0 or 1"
#elif !defined(KJIT_Q_mma_load_K_tiles) || !defined(KJIT_K_mma_load_K_tiles) || !defined(KJIT_V_mma_load_K_tiles)
#error "KJIT_Q_, KJIT_K_ or KJIT_V_mma_load_K_tiles is not defined: 8-wide fragments per load, 0 for all"
#elif !defined(KJIT_mma_double_buffer_loads) || !defined(KJIT_optimized_softmax)
#error "KJIT_mma_double_buffer_loads or KJIT_optimized_softmax is not defined: 0 or 1"
#elif !defined(KJIT_causal) || !defined(KJIT_grouped)
#error "KJIT_causal or KJIT_grouped is not defined: 0 or 1"
#elif !defined(KJIT_head_dim) || !defined(KJIT_head_dim_v)
#error "KJIT_head_dim or KJIT_head_dim_v is not defined: columns of Q and K, columns of V and O"
#elif !defined(KJIT_shared_bytes) || !defined(KJIT_threads)
#error "KJIT_shared_bytes or KJIT_threads is not defined: what the host launches a block with"
#endif

using namespace kjit;

namespace cfg {

using Element = ElementOf<KJIT_dtype>::type;

constexpr int kHeadDim = KJIT_head_dim;
constexpr int kHeadDimV = KJIT_head_dim_v;
constexpr bool kCausal = KJIT_causal;
constexpr bool kGrouped = KJIT_grouped;
constexpr int kQueryRows = KJIT_B_r;
constexpr int kKeyRows = KJIT_B_c;
constexpr int kWarps = KJIT_n_warps;
constexpr bool kAsyncCopy = KJIT_async_copy;
constexpr bool kEagerLoads = KJIT_eager_load_blocks;
constexpr bool kSwizzled = KJIT_swizzled;
constexpr int kQLoad = KJIT_Q_mma_load_K_tiles;
constexpr int kKLoad = KJIT_K_mma_load_K_tiles;
constexpr int kVLoad = KJIT_V_mma_load_K_tiles;
constexpr bool kDoubleBuffer = KJIT_mma_double_buffer_loads;
constexpr bool kOptimizedSoftmax = KJIT_optimized_softmax;
// The tiered build's first kernel, which should be compiled soon. Where two ways differ in code, it takes the shorter.
constexpr bool kShortCode = !kOptimizedSoftmax && kKeyRows == 16;
#ifdef KJIT_variant
constexpr bool kVariant = true; // an attention variant: variant_block.cuh
#else
constexpr bool kVariant = false;
#endif

constexpr int kThreads = kWarps * kLanesPerWarp;
constexpr int kRowsPerWarp = kQueryRows / kWarps;
constexpr int kRowTiles = kRowsPerWarp / 16; // m16 tiles of a warp
constexpr int kKeyTiles = kKeyRows / 16;     // 16-key tiles of a step

// Tiles are as wide as 16-column slices make them; the columns that a head does not have are zeros in shared memory and
// are neither read from nor written to global memory.
constexpr int kQueryKeySlices = ceil_div(kHeadDim, 16);
constexpr int kValueSlices = ceil_div(kHeadDimV, 16);
constexpr int kOutputTiles8 = kHeadDimV / 8; // accumulator tiles of 8 columns: none for columns that do not exist
constexpr int kWidestHead = 16 * (kQueryKeySlices > kValueSlices ? kQueryKeySlices : kValueSlices);

// The load counts of the config are in fragments, 8 wide; one mma is 16 deep and takes two. 0 means the whole operand.
constexpr int kQSliceDepth = kQLoad / 2;
constexpr int kKSliceDepth = kKLoad / 2;
constexpr int kVSliceDepth = kVLoad / 2;

static_assert(kHeadDim % 8 == 0 && kHeadDim >= 8 && kHeadDim <= 256, "head_dim: a multiple of 8 up to 256");
static_assert(kHeadDimV % 8 == 0 && kHeadDimV >= 8 && kHeadDimV <= 256, "head_dim_v: a multiple of 8 up to 256");
static_assert(KJIT_d_head == (kWidestHead < 32 ? 32 : kWidestHead), "d_head: the larger head size, in 16s, from 32");
static_assert(kWarps == 1 || kWarps == 2 || kWarps == 4 || kWarps == 8, "n_warps: 1, 2, 4 or 8");
static_assert(kQueryRows % (16 * kWarps) == 0 && kQueryRows <= 256, "B_r: a multiple of 16 * n_warps up to 256");
static_assert(kKeyRows % 16 == 0 && kKeyRows <= 256, "B_c: a multiple of 16 up to 256");
static_assert(kQLoad == kKLoad || kQLoad == 0, "Q_mma_load_K_tiles: equal to K's or 0");

__device__ constexpr bool load_count_is_legal(int count, int depth) {
  const int fragments = depth / 8;
  return count == 0 || (count >= 2 && (count & (count - 1)) == 0 && fragments % count == 0 &&
                        count <= (kDoubleBuffer ? fragments / 2 : fragments));
}
static_assert(load_count_is_legal(kQLoad, 16 * kQueryKeySlices),
              "Q_mma_load_K_tiles: 0, or a power of two from 2 that divides");
static_assert(load_count_is_legal(kKLoad, 16 * kQueryKeySlices),
              "K_mma_load_K_tiles: 0, or a power of two from 2 that divides");
static_assert(load_count_is_legal(kVLoad, kKeyRows), "V_mma_load_K_tiles: 0, or a power of two from 2 that divides");

using QTile = SharedTile<kQueryRows, 16 * kQueryKeySlices, kSwizzled>;
using KTile = SharedTile<kKeyRows, 16 * kQueryKeySlices, kSwizzled>;
using VTile = SharedTile<kKeyRows, 16 * kValueSlices, kSwizzled>;
using OTile = SharedTile<kQueryRows, 16 * kValueSlices, kSwizzled>; // uses the memory of Q

constexpr int kQueryBytes = QTile::kBytes > OTile::kBytes ? QTile::kBytes : OTile::kBytes;
constexpr int kSharedBytes = kQueryBytes + KTile::kBytes + VTile::kBytes;

// Were the host to reckon with less, the last words would lie outside.
static_assert(kSharedBytes == KJIT_shared_bytes, "shared_bytes: what the host asks for is what is used");
static_assert(kThreads == KJIT_threads, "threads: the host launches as many as the warps have");

} // namespace cfg
