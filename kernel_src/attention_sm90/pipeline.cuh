// Shared memory and the barriers between the producer and the consumers.
//
//   Q      [q_buffers][consumer][chunk][64 rows][64]     full: all of a tile's Q, and the tile;  empty: O has left it
//                                                        or, with O's own memory, its last product is done
//   K      [stages][chunk][tile_n rows][64]              full: arrived;  empty: every consumer is done with it
//   V      [stages][chunk][tile_n rows][64]              likewise
//   O      [consumer][o_chunks][64 rows][64]             each consumer's own
//   then the barriers, then a tile for each Q buffer (schedule.cuh); if tiles are split, then a word for each consumer
#pragma once
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/types.cuh>

#include "attention_sm90/config.cuh"

namespace shared {

constexpr int kKeysAt = cfg::kQueryBuffers * cfg::kQueryBytes;
constexpr int kValuesAt = kKeysAt + cfg::kStages * cfg::kKeyBytes;
constexpr int kOutputsAt = kValuesAt + cfg::kStages * cfg::kValueBytes;
constexpr int kBarriersAt = kOutputsAt + cfg::kConsumers * cfg::kGroupOutputBytes;
constexpr int kBarriers = 2 * cfg::kQueryBuffers + 4 * cfg::kStages;
constexpr int kTilesAt = kBarriersAt + 8 * kBarriers; // an even number of barriers: 16-byte aligned
constexpr int kTileBytes = cfg::kSplit ? 32 : 16;
constexpr int kWordsAt = kTilesAt + kTileBytes * cfg::kQueryBuffers;
constexpr int kBytes = kWordsAt + (cfg::kSplit ? 4 * cfg::kConsumers : 0);

} // namespace shared

// A ring of `kSlots` buffers seen from one side: which slot is next, and its barriers' parity.
template <int kSlots> struct Ring {
  int slot = 0;
  int parity = 0;

  KJIT_DEVICE void advance() {
    slot++;
    if (slot == kSlots) {
      slot = 0;
      parity ^= 1;
    }
  }
};

// Where things are, by the shared address of the whole.
struct Layout {
  uint32_t base;

  KJIT_DEVICE uint32_t query(int slot, int consumer) const {
    return base + slot * cfg::kQueryBytes + consumer * cfg::kGroupQueryBytes;
  }
  KJIT_DEVICE uint32_t keys(int slot) const { return base + shared::kKeysAt + slot * cfg::kKeyBytes; }
  KJIT_DEVICE uint32_t values(int slot) const { return base + shared::kValuesAt + slot * cfg::kValueBytes; }
  KJIT_DEVICE uint32_t output(int consumer) const {
    return base + shared::kOutputsAt + consumer * cfg::kGroupOutputBytes;
  }
  KJIT_DEVICE uint32_t tile(int slot) const { return base + shared::kTilesAt + shared::kTileBytes * slot; }
  KJIT_DEVICE uint32_t word(int consumer) const { return base + shared::kWordsAt + 4 * consumer; }

  KJIT_DEVICE uint32_t query_full(int slot) const { return barrier(slot); }
  KJIT_DEVICE uint32_t query_empty(int slot) const { return barrier(cfg::kQueryBuffers + slot); }
  KJIT_DEVICE uint32_t keys_full(int slot) const { return barrier(2 * cfg::kQueryBuffers + slot); }
  KJIT_DEVICE uint32_t keys_empty(int slot) const { return barrier(2 * cfg::kQueryBuffers + cfg::kStages + slot); }
  KJIT_DEVICE uint32_t values_full(int slot) const { return barrier(2 * cfg::kQueryBuffers + 2 * cfg::kStages + slot); }
  KJIT_DEVICE uint32_t values_empty(int slot) const {
    return barrier(2 * cfg::kQueryBuffers + 3 * cfg::kStages + slot);
  }

  // One thread, before a block barrier. One arrival from the producer; one from each consumer, or each of its warps for
  // Q, as every warp reads the tile.
  KJIT_DEVICE void initialise() const {
    for (int i = 0; i < cfg::kQueryBuffers; i++) {
      mbarrier_init(query_full(i), 1);
      mbarrier_init(query_empty(i), cfg::kConsumers * cfg::kGroupThreads / kLanesPerWarp);
    }
    for (int i = 0; i < cfg::kStages; i++) {
      mbarrier_init(keys_full(i), 1);
      mbarrier_init(keys_empty(i), cfg::kConsumers);
      mbarrier_init(values_full(i), 1);
      mbarrier_init(values_empty(i), cfg::kConsumers);
    }
    fence_mbarrier_init();
  }

private:
  KJIT_DEVICE uint32_t barrier(int index) const { return base + shared::kBarriersAt + 8 * index; }
};
