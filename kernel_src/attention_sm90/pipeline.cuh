// The layout of shared memory, and the mbarriers between the producer and the consumers.
//
// Every buffer of Q, K and V has two mbarriers. "Full" completes when TMA has written the buffer; the consumers wait
// for it. "Empty" completes when every consumer has arrived, being done with the buffer; the producer waits for it.
//
//   Q      [q_buffers][consumer][band][64 rows][64]      full: all of a tile's Q and the tile's coordinates are there;
//                                                        empty: O was stored through it or, when O has memory of its
//                                                        own, the last product with Q is done
//   K      [stages][band][tile_n rows][64]               empty: every consumer's product with it is done
//   V      [stages][band][tile_n rows][64]               empty: every consumer's product with it is done
//   O      [consumer][o_chunks bands][64 rows][64]       used by its consumer alone, so it needs no mbarrier
//   then the mbarriers, then a tile's coordinates for each Q buffer (schedule.cuh), then, with split-KV, one word for
//   each consumer (partials.cuh), then, for an attention variant, one word for each K buffer, and what is planned of
//   the next tile with two mbarriers of its own (variant_producer.cuh), the terms of a step that lie in a tensor
//   (variant_terms.cuh) or boxes of them with two mbarriers each (variant_term_producer.cuh), and the bounds of a
//   tile's rows or, with lists, the keep words of each K buffer's block
//
// Where there are two pairs of consumers, each has all of this for itself, SM90_PAIR_BYTES apart.
#pragma once
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/types.cuh>

#include "attention_sm90/bands.cuh"
#include "attention_sm90/config.cuh"
#include "attention_variant/params.h"

namespace shared {

constexpr int kKeysAt = cfg::kQueryBuffers * cfg::kQueryBytes;
constexpr int kValuesAt = kKeysAt + cfg::kStages * cfg::kKeyBytes;
constexpr int kOutputsAt = kValuesAt + cfg::kStages * cfg::kValueBytes;
constexpr int kBarriersAt = kOutputsAt + cfg::kConsumers * cfg::kConsumerOutputBytes;
constexpr int kBarriers = 2 * cfg::kQueryBuffers + 4 * cfg::kStages;
constexpr int kTilesAt = kBarriersAt + SM90_BARRIER_BYTES * kBarriers; // an even number of barriers: 16-byte aligned
constexpr int kTileBytes = cfg::kSplitKv ? 2 * SM90_TILE_BYTES : SM90_TILE_BYTES;
constexpr int kWordsAt = kTilesAt + kTileBytes * cfg::kQueryBuffers;
constexpr int kEntriesAt = kWordsAt + (cfg::kSplitKv ? SM90_WORD_BYTES * cfg::kConsumers : 0);
constexpr int kPlanBarriersAt = (kEntriesAt + SM90_WORD_BYTES * cfg::kStages + 15) / 16 * 16;
constexpr int kPlanAt = kPlanBarriersAt + 2 * SM90_BARRIER_BYTES;

// A variant's terms of a step: a row of kKeyRows of 16 bits for each row of the tile, where there is room for them.
constexpr int kTermsAt = kPlanBarriersAt + SM90_PLAN_BYTES;
constexpr int kTermRowBytes = 2 * cfg::kKeyRows + SM90_TERM_PADDING;
constexpr int kTermBytes = cfg::kConsumers * cfg::kConsumerRows * kTermRowBytes;
constexpr int kOwnBytes = kEntriesAt + SM90_ALIGNMENT - 1; // without what a variant adds
constexpr int kMostBytes = cfg::kPairs == 1 ? SM90_SHARED_MOST : SM90_PAIR_BYTES;
constexpr int kTermsEnd = kOwnBytes + SM90_WORD_BYTES * cfg::kStages + 15 + SM90_PLAN_BYTES + kTermBytes;
// Or boxes of them that TMA brings, and behind these the boxes' mbarriers.
constexpr int kTermBoxes = SM90_TERM_BOXES(cfg::kKeyRows); // of a step
constexpr int kBoxBytes = cfg::kBandBytes;
#if defined(KJIT_variant_pairs) && KJIT_variant_pairs == 3
constexpr int kTermSlots =
    SM90_TERM_SLOTS(KJIT_shared_bytes, cfg::kStages, KJIT_consumers, cfg::kPackGqa, cfg::kKeyRows);
#else
constexpr int kTermSlots = 0;
#endif
constexpr int kBoxesAt = (kTermsAt + SM90_ALIGNMENT - 1) / SM90_ALIGNMENT * SM90_ALIGNMENT;
constexpr int kBoxBarriersAt = kBoxesAt + cfg::kConsumers * kTermSlots * kBoxBytes;
constexpr int kBoxesEnd = kBoxBarriersAt + cfg::kConsumers * kTermSlots * 2 * SM90_BARRIER_BYTES;
#ifdef KJIT_variant_pairs
constexpr bool kStagesTerms = KJIT_variant_pairs >= 2 && kTermSlots == 0 && kTermsEnd <= kMostBytes;
#else
constexpr bool kStagesTerms = false;
#endif
constexpr int kTermsUsed = kTermSlots > 0 ? SM90_ALIGNMENT + cfg::kConsumers *kTermSlots *SM90_TERM_BOX_BYTES
                           : kStagesTerms ? kTermBytes
                                          : 0;

// The bounds of the rows of a variant's tile, where there is room for them: of one tile that is planned, and of one for
// each Q buffer, because consumers read a tile's bounds before they give its Q back.
constexpr int kBoundSlots = cfg::kQueryBuffers + 1;
constexpr int kBoundBytes = SM90_BOUND_BYTES * cfg::kConsumers * cfg::kConsumerRows;
constexpr int kBoundsAt = kTermSlots > 0 ? kBoxesEnd : kTermsAt + (kStagesTerms ? kTermBytes : 0);
constexpr bool kHasBounds = kTermsEnd - kTermBytes + kTermsUsed + kBoundSlots * kBoundBytes <= kMostBytes;

// The keep words of the block in a K buffer, of a variant whose blocks come from lists: in place of bounds, which it
// has none of.
constexpr int kWordsOfPart = VARIANT_WORDS_OF_PART(cfg::kKeyRows);
constexpr int kKeepBytes = SM90_WORD_BYTES * kWordsOfPart * cfg::kConsumers;
constexpr int kKeepAt = kBoundsAt;
#if defined(KJIT_variant_lists) && KJIT_variant_lists
constexpr bool kHasKeep = SM90_HAS_KEEP(KJIT_split, cfg::kPackGqa, cfg::kConsumers, cfg::kKeyRows) &&
                          kTermsEnd - kTermBytes + kTermsUsed + cfg::kStages * kKeepBytes <= kMostBytes;
#else
constexpr bool kHasKeep = false;
#endif

// The start is rounded up to the swizzle's pattern. Were the host to reckon with less, the last words would lie
// outside. A variant's words come on top of what the config alone needs.
static_assert(KJIT_shared_bytes == (cfg::kPairs == 1 ? kOwnBytes : SM90_PAIRS_BYTES),
              "shared_bytes: what the host asks for is what is used");
static_assert(cfg::kPairs == 1 || kTermsEnd - kTermBytes <= kMostBytes,
              "consumers: a pair has room for a variant's plan");

} // namespace shared

constexpr int kWarpsPerWarpgroup = kThreadsPerWarpgroup / kLanesPerWarp;

// Arrivals with which a consumer gives a K buffer back. A variant's warps each read the entry beside it. The barrier of
// the turn orders these reads before the one arrival of the warpgroup; where consumers take no turns, nothing does, so
// that each warp arrives for itself.
constexpr int kKeyReleases = cfg::kVariant && !cfg::kPingPong ? kWarpsPerWarpgroup : 1;

// The shared::cta addresses of buffers and mbarriers, from the address of the whole.
struct Layout {
  uint32_t base;

  KJIT_DEVICE uint32_t query(int slot, int consumer) const {
    return base + slot * cfg::kQueryBytes + consumer * cfg::kConsumerQueryBytes;
  }
  KJIT_DEVICE uint32_t keys(int slot) const { return base + shared::kKeysAt + slot * cfg::kKeyBytes; }
  KJIT_DEVICE uint32_t values(int slot) const { return base + shared::kValuesAt + slot * cfg::kValueBytes; }
  KJIT_DEVICE uint32_t output(int consumer) const {
    return base + shared::kOutputsAt + consumer * cfg::kConsumerOutputBytes;
  }
  KJIT_DEVICE uint32_t tile(int slot) const { return base + shared::kTilesAt + shared::kTileBytes * slot; }
  KJIT_DEVICE uint32_t word(int consumer) const { return base + shared::kWordsAt + 4 * consumer; }
  KJIT_DEVICE uint32_t entry(int slot) const { return base + shared::kEntriesAt + SM90_WORD_BYTES * slot; }

  KJIT_DEVICE uint32_t plan() const { return base + shared::kPlanAt; }
  KJIT_DEVICE uint32_t terms(int consumer) const {
    return base + shared::kTermsAt + consumer * cfg::kConsumerRows * shared::kTermRowBytes;
  }
  KJIT_DEVICE uint32_t box(int consumer, int slot) const {
    return base + shared::kBoxesAt + (consumer * shared::kTermSlots + slot) * shared::kBoxBytes;
  }
  KJIT_DEVICE uint32_t box_full(int consumer, int slot) const {
    return base + shared::kBoxBarriersAt + (consumer * shared::kTermSlots + slot) * 2 * SM90_BARRIER_BYTES;
  }
  KJIT_DEVICE uint32_t box_empty(int consumer, int slot) const { return box_full(consumer, slot) + SM90_BARRIER_BYTES; }
  KJIT_DEVICE uint32_t bounds(int slot, int row) const {
    return base + shared::kBoundsAt + slot * shared::kBoundBytes + row * SM90_BOUND_BYTES;
  }
  KJIT_DEVICE uint32_t keep(int slot, int consumer) const {
    return base + shared::kKeepAt + slot * shared::kKeepBytes + consumer * SM90_WORD_BYTES * shared::kWordsOfPart;
  }
  KJIT_DEVICE uint32_t plan_full() const { return base + shared::kPlanBarriersAt; }
  KJIT_DEVICE uint32_t plan_empty() const { return base + shared::kPlanBarriersAt + SM90_BARRIER_BYTES; }
  KJIT_DEVICE uint32_t query_full(int slot) const { return barrier(slot); }
  KJIT_DEVICE uint32_t query_empty(int slot) const { return barrier(cfg::kQueryBuffers + slot); }
  KJIT_DEVICE uint32_t keys_full(int slot) const { return barrier(2 * cfg::kQueryBuffers + slot); }
  KJIT_DEVICE uint32_t keys_empty(int slot) const { return barrier(2 * cfg::kQueryBuffers + cfg::kStages + slot); }
  KJIT_DEVICE uint32_t values_full(int slot) const { return barrier(2 * cfg::kQueryBuffers + 2 * cfg::kStages + slot); }
  KJIT_DEVICE uint32_t values_empty(int slot) const {
    return barrier(2 * cfg::kQueryBuffers + 3 * cfg::kStages + slot);
  }

  // Initialise the mbarriers. One thread, before a barrier of the block. "Full" takes one arrival of the producer;
  // "empty" takes one of each consumer, or for Q one of each of its warps, because every warp reads the tile's
  // coordinates; for K see kKeyReleases.
  KJIT_DEVICE void initialise() const {
    for (int i = 0; i < cfg::kQueryBuffers; i++) {
      mbarrier_init(query_full(i), 1);
      mbarrier_init(query_empty(i), cfg::kConsumers * kWarpsPerWarpgroup);
    }
    for (int i = 0; i < cfg::kStages; i++) {
      mbarrier_init(keys_full(i), 1);
      mbarrier_init(keys_empty(i), cfg::kConsumers * kKeyReleases);
      mbarrier_init(values_full(i), 1);
      mbarrier_init(values_empty(i), cfg::kConsumers);
    }
    if constexpr (cfg::kVariant) {
      mbarrier_init(plan_full(), 1);
      mbarrier_init(plan_empty(), 1 + (shared::kTermSlots > 0 ? cfg::kConsumers : 0));
      for (int c = 0; c < cfg::kConsumers; c++)
        for (int i = 0; i < shared::kTermSlots; i++) {
          mbarrier_init(box_full(c, i), 1);
          mbarrier_init(box_empty(c, i), kWarpsPerWarpgroup);
        }
    }
    fence_mbarrier_init();
  }

private:
  KJIT_DEVICE uint32_t barrier(int index) const { return base + shared::kBarriersAt + 8 * index; }
};
