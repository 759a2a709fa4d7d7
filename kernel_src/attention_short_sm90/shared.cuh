// The layout of shared memory, and the mbarriers between the producer and the consumers.
//
// "Full" completes when TMA has written a buffer; who uses it waits for it. "Empty" completes when everybody who uses
// the buffer has arrived; the producer waits for it.
//
//   Q      [consumer][q_buffers][band][64 rows][64]   a consumer's own ring. empty: O was stored through it
//   K, V   [stages] of [band][tile_n rows][64] each   of one head, used by all consumers. K and V have a "full" each,
//                                                     and one "empty": every consumer is done with the head
//   then the mbarriers
#pragma once
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/types.cuh>

#include "attention_short_sm90/config.cuh"
#include "attention_sm90/bands.cuh"

namespace shared {

constexpr int kQueries = cfg::kConsumers * cfg::kQueryBuffers;
constexpr int kKeysAt = kQueries * cfg::kQueryBytes;
constexpr int kValuesAt = kKeysAt + cfg::kStages * cfg::kKeyBytes;
constexpr int kBarriersAt = kValuesAt + cfg::kStages * cfg::kValueBytes;
constexpr int kBytes = kBarriersAt + SHORT_BARRIER_BYTES * (2 * kQueries + 3 * cfg::kStages);

// The start is rounded up to the swizzle's pattern, so the host asks for that many bytes more.
static_assert(kBytes + SHORT_ALIGNMENT - 1 == KJIT_shared_bytes,
              "shared_bytes: what the host asks for is what is used");

} // namespace shared

// The shared::cta addresses of buffers and mbarriers, from the address of the whole.
struct Layout {
  uint32_t base;

  KJIT_DEVICE uint32_t query(int consumer, int slot) const {
    return base + (consumer * cfg::kQueryBuffers + slot) * cfg::kQueryBytes;
  }
  KJIT_DEVICE uint32_t keys(int slot) const { return base + shared::kKeysAt + slot * cfg::kKeyBytes; }
  KJIT_DEVICE uint32_t values(int slot) const { return base + shared::kValuesAt + slot * cfg::kValueBytes; }

  KJIT_DEVICE uint32_t query_full(int consumer, int slot) const {
    return barrier(consumer * cfg::kQueryBuffers + slot);
  }
  KJIT_DEVICE uint32_t query_empty(int consumer, int slot) const {
    return barrier(shared::kQueries + consumer * cfg::kQueryBuffers + slot);
  }
  KJIT_DEVICE uint32_t keys_full(int slot) const { return barrier(2 * shared::kQueries + slot); }
  KJIT_DEVICE uint32_t values_full(int slot) const { return barrier(2 * shared::kQueries + cfg::kStages + slot); }
  KJIT_DEVICE uint32_t head_empty(int slot) const { return barrier(2 * shared::kQueries + 2 * cfg::kStages + slot); }

  // Initialise the mbarriers. One thread, before a barrier of the block. "Full" takes one arrival of the producer,
  // "empty" one of each consumer that uses the buffer.
  KJIT_DEVICE void initialise() const {
    for (int i = 0; i < 2 * shared::kQueries + 2 * cfg::kStages; i++)
      mbarrier_init(barrier(i), 1);
    for (int i = 0; i < cfg::kStages; i++)
      mbarrier_init(head_empty(i), cfg::kConsumers);
    fence_mbarrier_init();
  }

private:
  KJIT_DEVICE uint32_t barrier(int index) const { return base + shared::kBarriersAt + SHORT_BARRIER_BYTES * index; }
};
