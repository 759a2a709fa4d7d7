// The layout of shared memory, and the mbarriers between the producer and the consumers.
//
//   own         [consumer][band][64 rows][64]   head_dim columns; loaded once; dq or dk is stored through it;
//                                               two of these tiles where kCarries (config.cuh)
//   own value   [consumer][band][64 rows][64]   head_dim_v columns; loaded once; dv is stored through it
//   step        [stages][band][rows][64]        head_dim columns
//   step value  [value_stages][band][rows][64]  head_dim_v columns
//   dS          [2][consumer][rows][64]         where dq is summed: of two steps, rows are queries, columns keys
//   dQ          [consumer][columns / 8][128][4] where dq is summed, unless `direct`: a consumer's part, in fp32
//   P           [rows / 16][128][8]             where consumers split dk and dv: in the order of wgmma's operand A
//   statistics  [stages][rows / 2][4]           with queries as the step: two LSE, then two delta, of neighbours
//   then the mbarriers
//
// "Full" completes when TMA, and for statistics a warp of the producer, has written a buffer. "Empty" completes when
// every warp of every consumer has arrived, being done with it. Of dS both are counted by the consumers: full when all
// have written their part, empty when the products of all that read it have ended. Each thread arrives by itself for
// what it has read or written itself (statistics, dS, dQ, P), because racecheck of compute-sanitizer does not follow an
// order through __syncwarp() to one lane that arrives for its warp.
#pragma once
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/memory.cuh>
#include <kjit/ring.cuh>
#include <kjit/types.cuh>

#include "attention_backward_sm90/config.cuh"

namespace shared {

constexpr int kOwnBytes = cfg::kOwnGroups * cfg::kGroupBytes;
constexpr int kOwnValueAt = cfg::kOwnStages * kOwnBytes;
constexpr int kStepAt = kOwnValueAt + cfg::kOwnGroups * cfg::kGroupValueBytes;
constexpr int kStepValueAt = kStepAt + cfg::kStages * cfg::kStepBytes;
constexpr int kDsAt = kStepValueAt + cfg::kValueStages * cfg::kStepValueBytes;
constexpr int kDqAt = kDsAt + cfg::kDsStages * cfg::kDsBytes;
constexpr int kPAt = kDqAt + (cfg::kSumsDq && !cfg::kDirect ? cfg::kConsumers * cfg::kDqBytes : 0);
constexpr int kStatisticsAt = kPAt + cfg::kPBytes;
constexpr int kBarriersAt = kStatisticsAt + cfg::kStages * cfg::kStatisticsBytes;
constexpr int kStepBarriers = 1 + 2 * cfg::kStages + 2 * cfg::kValueStages;
constexpr int kDqBarriers = cfg::kSumsDq ? 2 * cfg::kConsumers : 0;
constexpr int kDsBarriers = cfg::kStaggered ? 2 * cfg::kDsStages : 0;
constexpr int kPBarriersFrom = kStepBarriers + kDqBarriers + kDsBarriers;
constexpr int kTileBarriersFrom = kPBarriersFrom + (cfg::kSplits ? 2 : 0);
// The last mbarriers, of a persistent block: "full" and "empty" of two slots for a tile's coordinates; "empty" of two
// own tiles and of the own value tile; "full" of two own tiles. Behind them lie the two slots, 16 bytes each.
constexpr int kBarriers = kTileBarriersFrom + (cfg::kPersistent ? BACKWARD_SM90_TILE_BARRIERS : 0);
static_assert(!cfg::kPersistent || kTileBarriersFrom % 2 == 1, "the slots are aligned");
constexpr int kBytes = kBarriersAt + BACKWARD_SM90_BARRIER_BYTES * kBarriers;

// The start is rounded up to the swizzle's pattern, so the host asks for that many bytes more.
static_assert((cfg::kIsBegin ? 0 : (cfg::kIsEnd ? cfg::kGroupBytes : kBytes) + BACKWARD_SM90_ALIGNMENT - 1) ==
                  KJIT_shared_bytes,
              "shared_bytes: what the host asks for is what is used");

} // namespace shared

// The shared::cta addresses of buffers and mbarriers, from the address of the whole.
struct Layout {
  uint32_t base;

  KJIT_DEVICE uint32_t own(int consumer, int slot = 0) const {
    return base + slot * shared::kOwnBytes + consumer * cfg::kGroupBytes;
  }
  KJIT_DEVICE uint32_t own_value(int consumer) const {
    return base + shared::kOwnValueAt + consumer * cfg::kGroupValueBytes;
  }
  KJIT_DEVICE uint32_t step(int slot) const { return base + shared::kStepAt + slot * cfg::kStepBytes; }
  KJIT_DEVICE uint32_t step_value(int slot) const { return base + shared::kStepValueAt + slot * cfg::kStepValueBytes; }
  KJIT_DEVICE uint32_t statistics(int slot) const {
    return base + shared::kStatisticsAt + slot * cfg::kStatisticsBytes;
  }
  KJIT_DEVICE uint32_t ds(int slot) const { return base + shared::kDsAt + slot * cfg::kDsBytes; }
  KJIT_DEVICE uint32_t dq(int consumer) const { return base + shared::kDqAt + consumer * cfg::kDqBytes; }

  KJIT_DEVICE uint32_t p() const { return base + shared::kPAt; }
  KJIT_DEVICE uint32_t p_full() const { return barrier(shared::kPBarriersFrom); }
  KJIT_DEVICE uint32_t p_empty() const { return barrier(shared::kPBarriersFrom + 1); }

  KJIT_DEVICE uint32_t tile_full(int slot) const { return barrier(shared::kTileBarriersFrom + slot); }
  KJIT_DEVICE uint32_t tile_empty(int slot) const { return barrier(shared::kTileBarriersFrom + 2 + slot); }
  KJIT_DEVICE uint32_t own_empty(int slot) const { return barrier(shared::kTileBarriersFrom + 4 + slot); }
  KJIT_DEVICE uint32_t own_value_empty() const { return barrier(shared::kTileBarriersFrom + 6); }
  KJIT_DEVICE uint32_t tile_place(int slot) const { return barrier(shared::kTileBarriersFrom + 9 + 2 * slot); }

  // Both own tiles have one barrier, unless there are two of the first, which then come at another time.
  KJIT_DEVICE uint32_t own_full(int slot = 0) const {
    return barrier(cfg::kCarries ? shared::kTileBarriersFrom + 7 + slot : 0);
  }
  KJIT_DEVICE uint32_t own_value_full() const { return barrier(0); }
  KJIT_DEVICE uint32_t step_full(int slot) const { return barrier(1 + slot); }
  KJIT_DEVICE uint32_t step_empty(int slot) const { return barrier(1 + cfg::kStages + slot); }
  KJIT_DEVICE uint32_t value_full(int slot) const { return barrier(1 + 2 * cfg::kStages + slot); }
  KJIT_DEVICE uint32_t value_empty(int slot) const { return barrier(1 + 2 * cfg::kStages + cfg::kValueStages + slot); }
  KJIT_DEVICE uint32_t dq_full(int consumer) const { return barrier(shared::kStepBarriers + consumer); }
  KJIT_DEVICE uint32_t dq_empty(int consumer) const {
    return barrier(shared::kStepBarriers + cfg::kConsumers + consumer);
  }
  KJIT_DEVICE uint32_t ds_full(int slot) const { return barrier(shared::kStepBarriers + shared::kDqBarriers + slot); }
  KJIT_DEVICE uint32_t ds_empty(int slot) const { return ds_full(cfg::kDsStages + slot); }

  // Initialise the mbarriers. One thread, before a barrier of the block.
  KJIT_DEVICE void initialise() const {
    constexpr int kThreads = cfg::kConsumers * kThreadsPerWarpgroup, kWarps = kThreads / kLanesPerWarp;
    mbarrier_init(own_value_full(), 1); // or of both own tiles
    for (int i = 0; i < cfg::kStages; i++) {
      mbarrier_init(step_full(i), cfg::kOwnsKeys ? 1 + kLanesPerWarp : 1); // the lanes that write statistics
      mbarrier_init(step_empty(i), cfg::kOwnsKeys ? kThreads : kWarps);    // the threads that read statistics
    }
    for (int i = 0; i < cfg::kValueStages; i++) {
      mbarrier_init(value_full(i), 1);
      mbarrier_init(value_empty(i), kWarps);
    }
    for (int i = 0; cfg::kSumsDq && i < cfg::kConsumers; i++) {
      mbarrier_init(dq_full(i), kThreadsPerWarpgroup);
      mbarrier_init(dq_empty(i), 1);
    }
    for (int i = 0; cfg::kStaggered && i < cfg::kDsStages; i++) {
      mbarrier_init(ds_full(i), kThreads);
      mbarrier_init(ds_empty(i), kWarps);
    }
    if constexpr (cfg::kSplits) {
      mbarrier_init(p_full(), kThreadsPerWarpgroup);
      mbarrier_init(p_empty(), kThreadsPerWarpgroup);
    }
    if constexpr (cfg::kPersistent) {
      for (int i = 0; i < 2; i++) {
        mbarrier_init(tile_full(i), 1);
        mbarrier_init(tile_empty(i), kThreads + kLanesPerWarp + cfg::kConsumers); // and statistics, Adders
      }
    }
    if constexpr (cfg::kPersistent && !cfg::kCarries) mbarrier_init(own_empty(0), 1);
    if constexpr (cfg::kCarries) {
      for (int i = 0; i < cfg::kOwnStages; i++) {
        mbarrier_init(own_empty(i), kWarps);
        mbarrier_init(own_full(i), 1);
      }
      mbarrier_init(own_value_empty(), kWarps);
    }
    fence_mbarrier_init();
  }

private:
  KJIT_DEVICE uint32_t barrier(int index) const {
    return base + shared::kBarriersAt + BACKWARD_SM90_BARRIER_BYTES * index;
  }
};

// The places of the tiles that a persistent block works on, as the roles read them behind the producer: tile, head,
// batch entry, and whether there is one.
struct Tiles {
  Ring<2> ring;

  // The next place. Each thread of a role by itself.
  KJIT_DEVICE Chunk next(const Layout &at) {
    mbarrier_wait_parity(at.tile_full(ring.slot), ring.parity);
    const Chunk place = ld_shared_16(at.tile_place(ring.slot));
    mbarrier_arrive(at.tile_empty(ring.slot));
    ring.advance();
    return place;
  }
};
