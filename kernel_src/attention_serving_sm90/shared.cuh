// The layout of shared memory, and its mbarriers.
//
//   K, V       [stages][band][keys][64] each, or [128] of 8-bit elements. "Full" completes when TMA has written a
//              block, "empty" when every warp is done multiplying it.
//   work       of the workers for one tile (config.cuh)
//   jobs       [SERVING_SM90_JOBS] shares of tiles, which the producer finds for the workers; and one of zeros
//   then the mbarriers
//
// Racecheck of compute-sanitizer does not follow an order through __syncwarp() to one lane that arrives at an mbarrier
// for its warp. TMA's writes and wgmma's reads are nothing to it. But with K and V of 8 bits lanes read V, so workers
// meet before they write zeros to a buffer that others read in an earlier round; not with tiles of 16 rows, which took
// 0 to 2 % longer with it. And each lane arrives for the job that it has read.
#pragma once
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ring.cuh>
#include <kjit/types.cuh>

#include "attention_serving_sm90/config.cuh"

#include "attention_serving/walk.cuh"

namespace shared {

constexpr int kValuesAt = cfg::kStages * cfg::kKeyBytes;
constexpr int kWorkAt = kValuesAt + cfg::kStages * cfg::kValueBytes;
constexpr int kJobsAt = kWorkAt + cfg::kWorkBytes;
constexpr int kBarriersAt = kJobsAt + SERVING_SM90_JOB_SLOTS * SERVING_SM90_JOB_BYTES;
constexpr int kBytes = kBarriersAt + SERVING_SM90_BARRIER_BYTES * (4 * cfg::kStages + 2 * SERVING_SM90_JOBS);

// The start is rounded up to the swizzle's pattern, so the host asks for that many bytes more.
static_assert(kBytes + SERVING_SM90_ALIGNMENT - 1 == KJIT_shared_bytes, "shared_bytes: the host asks for what is used");

} // namespace shared

// A share of a tile. The last job's sequence is `batch`: there is no further one.
struct alignas(16) Job {
  PlannedTile tile;
  Share share;
  bool is_last; // known to be: a block that has no job behind this one may not know it yet
};
static_assert(sizeof(Job) == SERVING_SM90_JOB_BYTES, "a job has its place in shared memory");

// The shared::cta addresses of buffers and mbarriers, from the address of the whole.
struct Layout {
  uint32_t base;
  char *start; // the same as a pointer

  KJIT_DEVICE uint32_t keys(int slot) const { return base + slot * cfg::kKeyBytes; }
  KJIT_DEVICE uint32_t values(int slot) const { return base + shared::kValuesAt + slot * cfg::kValueBytes; }
  KJIT_DEVICE uint32_t query() const { return base + shared::kWorkAt; }

  KJIT_DEVICE char *work() const { return start + shared::kWorkAt; }
  KJIT_DEVICE Job &job(int slot) const { return ((Job *)(start + shared::kJobsAt))[slot]; }

  // The job of zeros. A warp fills it.
  KJIT_DEVICE const Job &no_job() const { return job(SERVING_SM90_JOBS); }
  KJIT_DEVICE void clear_no_job(int lane) const {
    if (lane < SERVING_SM90_JOB_BYTES / 4) ((int *)&job(SERVING_SM90_JOBS))[lane] = 0;
  }

  KJIT_DEVICE uint32_t keys_full(int slot) const { return barrier(slot); }
  KJIT_DEVICE uint32_t keys_empty(int slot) const { return barrier(cfg::kStages + slot); }
  KJIT_DEVICE uint32_t values_full(int slot) const { return barrier(2 * cfg::kStages + slot); }
  KJIT_DEVICE uint32_t values_empty(int slot) const { return barrier(3 * cfg::kStages + slot); }
  KJIT_DEVICE uint32_t job_full(int slot) const { return barrier(4 * cfg::kStages + slot); }
  KJIT_DEVICE uint32_t job_empty(int slot) const { return barrier(4 * cfg::kStages + SERVING_SM90_JOBS + slot); }

  // Initialise the mbarriers. One thread, before a barrier of the block. "Full" takes one arrival, of the lane that
  // expects the bytes, or without TMA one of each thread; "empty" takes one of each warp that multiplies, of a job one
  // of each thread that reads it. Without a warp beside the workers there are no jobs.
  KJIT_DEVICE void initialise() const {
    constexpr int kArrivals = cfg::kGathered ? SERVING_SM90_WORKERS : 1; // a warpgroup gathers
    for (int i = 0; i < cfg::kStages; i++) {
      mbarrier_init(keys_full(i), kArrivals);
      mbarrier_init(keys_empty(i), cfg::kWorkers / kLanesPerWarp);
      mbarrier_init(values_full(i), kArrivals);
      mbarrier_init(values_empty(i), cfg::kWorkers / kLanesPerWarp);
    }
    for (int i = 0; i < SERVING_SM90_JOBS; i++) {
      mbarrier_init(job_full(i), 1);
      mbarrier_init(job_empty(i), cfg::kHasLoader ? cfg::kWorkers : cfg::kWorkers / kLanesPerWarp);
    }
    fence_mbarrier_init();
  }

private:
  KJIT_DEVICE uint32_t barrier(int index) const {
    return base + shared::kBarriersAt + SERVING_SM90_BARRIER_BYTES * index;
  }
};
