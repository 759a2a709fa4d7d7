// Constants of the Hopper kernel, and where things lie in shared memory.
//
//   left    [stages][BM x BK]   full barrier: arrived;  empty barrier: its consumers are done with it
//   right   [stages][BK x BN]   the same barriers
//   C       [consumers][store_buffers][64 rows][64 columns], on its way out by TMA
//   then the barriers
//
// Left is A and right is B; with `swap` left is B, transposed, right is A, transposed, and what is multiplied is C,
// transposed: where C has few rows, BN can be as small as 8 while BM, which wgmma wants to be 64 or more, lies along
// the columns. A K-major operand lies as [BK / 64][rows][64], another one as [rows / 64][BK][64]: rows of 128 bytes,
// written by TMA with its 128-byte swizzle. With `swap`, split_k > 1, or a BN that is no multiple of 64, there is no C;
// the memory of the operands takes the fp32 sums after the last product, by rows of C with 8 words of padding.
#pragma once
#include "config.cuh"
#include <kjit/ptx/cluster.cuh>
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/wgmma.cuh>

#if !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "instruction = wgmma requires sm_90a"
#elif !defined(KJIT_consumers) || !defined(KJIT_pingpong)
#error "KJIT_consumers or KJIT_pingpong is not defined: warpgroups that multiply; 1: each has a tile of its own"
#elif !defined(KJIT_cluster_m) || !defined(KJIT_cluster_n) || !defined(KJIT_split_k)
#error "KJIT_cluster_m, KJIT_cluster_n or KJIT_split_k is not defined: blocks of a cluster along M, N and K"
#elif !defined(KJIT_swap)
#error "KJIT_swap is not defined: 1: the rows of a tile lie along the columns of C"
#elif !defined(KJIT_store_buffers)
#error "KJIT_store_buffers is not defined: 64 x 64 pieces of C in shared memory, for each consumer"
#endif

#if KJIT_dtype == 15
KJIT_WGMMA(KJIT_BN, Bf16)
#elif KJIT_dtype == 5
KJIT_WGMMA(KJIT_BN, Fp16)
#endif

namespace cfg {

constexpr int kConsumers = KJIT_consumers;
constexpr bool kPingpong = KJIT_pingpong;
constexpr int kClusterM = KJIT_cluster_m;
constexpr int kClusterN = KJIT_cluster_n;
constexpr int kSplitK = KJIT_split_k;
constexpr int kClusterSize = kClusterM * kClusterN * kSplitK;
constexpr bool kSwap = KJIT_swap;
constexpr bool kLeftKMajor = kSwap ? kBKMajor : kAKMajor;
constexpr bool kRightKMajor = kSwap ? kAKMajor : kBKMajor;
constexpr int kStoreBuffers = KJIT_store_buffers;

// C leaves by way of fp32 sums in shared memory instead of by TMA.
constexpr bool kThroughSums = kSwap || kSplitK > 1 || kBN % 64 != 0;

constexpr int kWarpgroupThreads = 128;
constexpr int kThreads = kWarpgroupThreads * (kConsumers + 1);
constexpr int kConsumersPerTile = kPingpong ? 1 : kConsumers;
constexpr int kRowsPerConsumer = kBM / kConsumersPerTile;
constexpr int kBlocks64 = kRowsPerConsumer / 64; // wgmmas of 64 rows

// Registers of a thread after setmaxnreg: what the kernel starts with is shared out anew.
constexpr int kProducerRegisters = kBlocksPerSm == 2 ? 40 : kConsumers == 1 ? 56 : kConsumers == 2 ? 40 : 32;
constexpr int kConsumerRegisters = kBlocksPerSm == 2 ? 208 : kConsumers == 1 ? 256 : kConsumers == 2 ? 232 : 160;

constexpr int kRowBytes = 128; // of 64 elements
constexpr int kLeftBytes = kBM * kBK * 2;
constexpr int kRightBytes = kBN * kBK * 2;
constexpr int kPieceBytes = 64 * kRowBytes; // 64 x 64 of C

static_assert(kConsumers >= 1 && kConsumers <= 3, "consumers: 1 to 3");
static_assert(kBlocksPerSm == 1 || (kBlocksPerSm == 2 && kConsumers == 1), "blocks_per_sm: 1, or 2 with one consumer");
static_assert(!kPingpong || kConsumers == 2, "pingpong: with 2 consumers");
static_assert(kBM % (64 * kConsumersPerTile) == 0 && kBM <= 256, "BM: a multiple of 64 for each consumer of a tile");
static_assert(kBN % 8 == 0 && kBN >= 8 && kBN <= 256, "BN: a multiple of 8 up to 256");
static_assert(kBK % 64 == 0 && kBK <= 256, "BK: a multiple of 64 up to 256");
static_assert(kRightKMajor || kBN % 64 == 0, "BN: a multiple of 64 where the right operand is not K-major");
static_assert(kClusterSize <= 8, "cluster_m * cluster_n * split_k: at most 8");
static_assert(kLeftKMajor ? kBM % (8 * kClusterN) == 0 : kBK % (8 * kClusterN) == 0, "cluster_n: shares of 8 rows");
static_assert(kRightKMajor ? kBN % (8 * kClusterM) == 0 : kBK % (8 * kClusterM) == 0, "cluster_m: shares of 8 rows");
static_assert(!kThroughSums || !kPingpong,
              "pingpong: not with swap or split_k, and with a BN that is a multiple of 64");

} // namespace cfg

namespace shared {

constexpr int kRightAt = cfg::kStages * cfg::kLeftBytes;
constexpr int kCAt = kRightAt + cfg::kStages * cfg::kRightBytes;
constexpr int kCBytes = cfg::kThroughSums ? 0 : cfg::kConsumers * cfg::kStoreBuffers * cfg::kPieceBytes;
constexpr int kBarriersAt = kCAt + kCBytes;
constexpr int kBytes = kBarriersAt + 2 * 8 * cfg::kStages;

// fp32 sums of a tile of C: rows 8 words further apart than they are long, so that the four rows of a half warp's
// stores of 8 bytes use different banks.
constexpr int kSumRows = cfg::kSwap ? cfg::kBN : cfg::kBM;
constexpr int kSumColumns = cfg::kSwap ? cfg::kBM : cfg::kBN;
constexpr int kSumRowBytes = (kSumColumns + 8) * 4;
static_assert(!cfg::kThroughSums || kSumRows * kSumRowBytes <= kCAt,
              "stages: the sums must fit the memory of the operands");

struct Layout {
  uint32_t base;

  KJIT_DEVICE uint32_t left(int slot) const { return base + slot * cfg::kLeftBytes; }
  KJIT_DEVICE uint32_t right(int slot) const { return base + kRightAt + slot * cfg::kRightBytes; }
  KJIT_DEVICE uint32_t c(int consumer, int buffer) const {
    return base + kCAt + (consumer * cfg::kStoreBuffers + buffer) * cfg::kPieceBytes;
  }
  KJIT_DEVICE uint32_t sum(int row, int column) const { return base + row * kSumRowBytes + column * 4; }
  KJIT_DEVICE uint32_t full(int slot) const { return base + kBarriersAt + 8 * slot; }
  KJIT_DEVICE uint32_t empty(int slot) const { return base + kBarriersAt + 8 * (cfg::kStages + slot); }

  // One thread, before all threads of the cluster meet. A slot is full when this block's producer has announced its
  // bytes and these have arrived, from whichever block; it is empty when the consumers of every block that gets a share
  // of it from here, or gives one, have said so.
  KJIT_DEVICE void initialise() const {
    for (int i = 0; i < cfg::kStages; i++) {
      mbarrier_init(full(i), 1);
      mbarrier_init(empty(i), cfg::kConsumersPerTile * (cfg::kClusterM + cfg::kClusterN - 1));
    }
    fence_mbarrier_init();
  }
};

} // namespace shared

// A position in the ring of stages. The parity is that of the full barrier's phase.
struct RingPosition {
  int slot = 0;
  int parity = 0;

  KJIT_DEVICE void advance() {
    if (++slot == cfg::kStages) {
      slot = 0;
      parity ^= 1;
    }
  }
  KJIT_DEVICE void skip(int steps) {
    slot += steps;
    parity ^= slot / cfg::kStages & 1;
    slot %= cfg::kStages;
  }
};
