// The Hopper kernel (sm_90a): TMA, mbarriers, warp-specialised wgmma.
//
// Grid      clusters of cluster_m * cluster_n * split_k blocks in x. Without kThroughSums, as many as fit the card,
// each
//           walking over tiles; with it, one for each cluster_m x cluster_n tiles (sm90_schedule.cuh).
// Block     one producer warpgroup, of which one thread works (sm90_producer.cuh), and `consumers` warpgroups that
//           multiply and store (sm90_consumer.cuh). They meet at a ring of `stages` slots (sm90_config.cuh).
// swap      the block multiplies a tile of C transposed: for a C of few rows (sm90_config.cuh).
// split_k   each block of a cluster multiplies its share of K; then the blocks add up each other's fp32 sums through
//           distributed shared memory, each for its own part of the tile and always in the same order.
// Registers a consumer thread holds BM / consumers * BN / 128 sums (with pingpong BM * BN / 128).
#pragma once
#include "sm90_consumer.cuh"
#include "sm90_producer.cuh"
#include <kjit/ptx/setmaxnreg.cuh>

// All threads of all blocks of the cluster. With `kRelease` each sees what the others wrote to shared memory before.
template <bool kRelease> KJIT_DEVICE void meet_cluster() {
  if constexpr (cfg::kClusterSize > 1) {
    __syncwarp();
    kRelease ? cluster_arrive() : cluster_arrive_relaxed();
    cluster_wait();
  } else {
    __syncthreads();
  }
}

KJIT_DEVICE void run_block(const gemm_params &p, char *raw) {
  const shared::Layout layout{(cvta_to_shared(raw) + 1023) & ~1023u};
  if (threadIdx.x == 0) {
    prefetch_tensormap(p.a_map);
    prefetch_tensormap(p.b_map);
    layout.initialise();
  }
  meet_cluster<false>(); // the barriers exist for all blocks: initialise() ends with their fence
  const Place place = Place::own();
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / cfg::kWarpgroupThreads, 0); // uniform, and known to be
  if (warpgroup == 0) {
    setmaxnreg_dec<cfg::kProducerRegisters>();
    if (threadIdx.x == 0) Producer{p, layout, place}.run();
    if constexpr (cfg::kThroughSums) meet_cluster<true>();
  } else {
    setmaxnreg_inc<cfg::kConsumerRegisters>();
    Consumer consumer(p, layout, place, warpgroup - 1, threadIdx.x % cfg::kWarpgroupThreads);
    if constexpr (cfg::kThroughSums) {
      consumer.run_to_sums();
      meet_cluster<true>();
      consumer.store_sums();
    } else {
      consumer.run();
    }
  }
  if constexpr (cfg::kClusterSize > 1) meet_cluster<false>(); // no block ends while others write to it or read from it
}
