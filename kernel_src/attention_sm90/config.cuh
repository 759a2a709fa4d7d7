// The configuration of attention_sm90: the macros that kjit writes in front of the source (KJIT_<field>) become typed
// constants, and their values are checked. No other file reads these macros.
#pragma once
#include <kjit/ptx/wgmma.cuh>
#include <kjit/types.cuh>

#include "attention_sm90/layout.h"

#if !defined(KJIT_dtype)
#error "KJIT_dtype is not defined: element type, 5 (fp16) or 15 (bf16)"
#elif !defined(KJIT_head_dim) || !defined(KJIT_head_dim_v)
#error "KJIT_head_dim or KJIT_head_dim_v is not defined: columns of Q and K, columns of V and O"
#elif !defined(KJIT_causal)
#error "KJIT_causal is not defined: 0 or 1"
#elif !defined(KJIT_consumers) || !defined(KJIT_tile_n)
#error "KJIT_consumers or KJIT_tile_n is not defined: warpgroups of 64 query rows, key rows per step"
#elif !defined(KJIT_stages) || !defined(KJIT_q_buffers)
#error "KJIT_stages or KJIT_q_buffers is not defined: K and V tiles, Q tiles in shared memory"
#elif !defined(KJIT_o_chunks)
#error "KJIT_o_chunks is not defined: 64-column bands of O that have shared memory of their own, or 0"
#elif !defined(KJIT_ping_pong) || !defined(KJIT_rescale_slack)
#error "KJIT_ping_pong or KJIT_rescale_slack is not defined: 0 or 1; log2 of a sum that needs no rescale"
#elif !defined(KJIT_packed) || !defined(KJIT_split)
#error "KJIT_packed or KJIT_split is not defined: query heads in a tile's rows; 0 or 1"
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
constexpr int kPairs = SM90_PAIRS(KJIT_consumers);              // of consumers, each with a tile of its own
constexpr int kConsumers = SM90_TILE_CONSUMERS(KJIT_consumers); // of a tile
constexpr int kKeyRows = KJIT_tile_n;
constexpr int kStages = KJIT_stages;
constexpr int kQueryBuffers = KJIT_q_buffers;
constexpr int kOutputBands = KJIT_split ? 0 : KJIT_o_chunks;
constexpr bool kPingPong = KJIT_ping_pong && kConsumers > 1;
constexpr int kRescaleThreshold = KJIT_rescale_slack;
// True when shared memory has room for a tile's last product and the next tile's first one at the same time.
constexpr bool kOverlapsTiles = kQueryBuffers == 2 || kOutputBands > 0;
// True when O of a finished tile lies in memory of its own until the products after it are issued.
constexpr bool kStoresLate = kQueryBuffers == 2 && kOutputBands > 0;
constexpr int kPackGqa = KJIT_packed; // query heads that share a key head, in the rows of one tile
constexpr bool kSplitKv = KJIT_split; // split-KV: a tile's key blocks are divided among blocks of threads
#ifdef KJIT_variant
constexpr bool kVariant = true;              // an attention variant: variant_consumer.cuh
constexpr bool kListed = KJIT_variant_lists; // whose key blocks may come from lists, by which tiles are ordered
#else
constexpr bool kVariant = false, kListed = false;
#endif

constexpr int kConsumerRows = SM90_GROUP_ROWS; // query rows of a consumer warpgroup: M of wgmma
constexpr int kQueryRows = kConsumerRows * kConsumers;
constexpr int kConsumerQueries = kConsumerRows / kPackGqa; // row r belongs to query r / kPackGqa
constexpr int kTileQueries = kQueryRows / kPackGqa;
constexpr int kThreads = kThreadsPerWarpgroup * (kPairs * kConsumers + 1);

// Registers of each thread after setmaxnreg: the warpgroups together may have 65,536 / 128 = 512, or what they begin
// with, which is 96 each where there are five.
constexpr int kProducerRegisters = kPairs == 2 ? 32 : kConsumers == 1 ? 56 : kConsumers == 2 ? 40 : 32;
constexpr int kConsumerRegisters = kPairs == 2 ? 112 : kConsumers == 1 ? 256 : kConsumers == 2 ? 232 : 160;

// Where there are two pairs, each has two warps of the producer's warpgroup.
constexpr int kPairProducers = kThreadsPerWarpgroup / kPairs;

static_assert(kHeadDim % 8 == 0 && kHeadDim >= 8 && kHeadDim <= 256, "head_dim: a multiple of 8 up to 256");
static_assert(kHeadDimV % 8 == 0 && kHeadDimV >= 8 && kHeadDimV <= 256, "head_dim_v: a multiple of 8 up to 256");
static_assert(KJIT_consumers >= 1 && KJIT_consumers <= 4, "consumers: 1 to 4");
static_assert(kPairs == 1 || !kSplitKv, "consumers: pairs do not split keys");
static_assert(kKeyRows % 16 == 0 && kKeyRows <= 256, "tile_n: a multiple of 16 up to 256");
static_assert(kStages >= 2 && kStages <= 4, "stages: 2 to 4");
static_assert(kRescaleThreshold >= 0 && kRescaleThreshold <= 15, "rescale_slack: 0 to 15");
static_assert(kQueryBuffers == 1 || kQueryBuffers == 2, "q_buffers: 1 or 2");
static_assert(kOutputBands >= 0 && kOutputBands <= 4, "o_chunks: 0 to 4");
static_assert(kThreads == KJIT_threads, "threads: the host launches as many as the roles have");
static_assert(kThreadsPerWarpgroup == SM90_GROUP_THREADS, "the host's warpgroups are the kernel's");
static_assert(kPackGqa >= 1 && kPackGqa <= 64 && (kPackGqa & (kPackGqa - 1)) == 0, "packed: a power of two up to 64");

// A tile lies in shared memory as bands of 64 columns, [band][rows][64], each with rows of 128 bytes that TMA swizzles.
// TMA fills columns that the head does not have with zeros; they are multiplied only up to the next multiple of 16.
__device__ constexpr int bands(int columns) {
  return (columns + SM90_CHUNK_COLUMNS - 1) / SM90_CHUNK_COLUMNS;
}
constexpr int kRowBytes = SM90_ROW_BYTES;
constexpr int kBandBytes = kConsumerRows * kRowBytes; // a band of one consumer's rows of Q or O
// One consumer's rows of Q. O is stored through the same memory, unless it has memory of its own.
constexpr int kConsumerQueryBytes =
    kBandBytes * (bands(kHeadDim) > bands(kHeadDimV) || kOutputBands > 0 ? bands(kHeadDim) : bands(kHeadDimV));
constexpr int kQueryBytes = kConsumers * kConsumerQueryBytes;
constexpr int kConsumerOutputBytes = kBandBytes * kOutputBands;
constexpr int kKeyBytes = kKeyRows * kRowBytes * bands(kHeadDim);
constexpr int kValueBytes = kKeyRows * kRowBytes * bands(kHeadDimV);

} // namespace cfg

// A consumer's number among those of its tile, by that among all.
KJIT_DEVICE int consumer_of_tile(int consumer) {
  return cfg::kPairs == 1 ? consumer : consumer % cfg::kConsumers;
}

// Which pair of consumers the thread belongs to, as one of them or as one of their producers.
KJIT_DEVICE int pair_of_thread() {
  if constexpr (cfg::kPairs == 1) return 0;
  const int warpgroup = threadIdx.x / kThreadsPerWarpgroup;
  return warpgroup == 0 ? threadIdx.x / cfg::kPairProducers : (warpgroup - 1) / cfg::kConsumers;
}
