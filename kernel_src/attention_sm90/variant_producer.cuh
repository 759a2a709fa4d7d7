// The producer of an attention variant: two warps of the producer's warpgroup. Its other two may bring terms
// (variant_term_producer.cuh).
//
// The planner, one warp, takes the number of the next tile from the scheduler and finds out which key blocks that tile
// visits, while the tile before it is loaded: evaluating the bounds of a tile's rows takes longer than a step, and as
// long as the tensors take that a mask may read. It leaves what it found in shared memory, the plan. The producer, one
// thread, issues the TMA loads of a planned tile, in the order of the dense producer, which it is derived from. It asks
// for the next plan kPlannedAhead key blocks before a tile's last one: early enough to hide the planning, late enough
// that a block takes a number when it is nearly free.
//
// With each K buffer the producer leaves an entry for the consumers: the key block's number, whether all rows of the
// tile see all of its keys, and whether it is the tile's last block. The consumers read it before their first product
// with that buffer. The keep words of a block, where its list has them, come with K too.
//
// The planner waits for the kernel that makes the lists, which may still run when this one begins, or for each list.
#pragma once
#include <kjit/ptx/bulk_load.cuh>
#include <kjit/ptx/bulk_reduce.cuh>
#include <kjit/ptx/global.cuh>
#include <kjit/ptx/griddepcontrol.cuh>

#include "attention_sm90/producer.cuh"
#include "attention_sm90/variant_tile.cuh"

// The plan in shared memory: the tile's coordinates (store_tile()), the walk's numbers, its ranges.
struct Plan {
  static constexpr int kPlannedAhead = 3;
  static constexpr int kNumbersAt = shared::kTileBytes, kRangesAt = kNumbersAt + 16;
  static_assert(2 * SM90_BARRIER_BYTES + kRangesAt + 16 * variant::kIntervals <= SM90_PLAN_BYTES,
                "SM90_PLAN_BYTES: what the host asks for is enough");

  // Write a tile and its walk. One thread.
  KJIT_DEVICE static void store(uint32_t plan, const Tile &tile, const variant::BlockWalk &walk) {
    store_tile(plan, tile);
    st_shared_16(plan + kNumbersAt,
                 {{(uint32_t)walk.count, (uint32_t)walk.position, (uint32_t)walk.first_entry, (uint32_t)walk.start()}});
#pragma unroll
    for (int i = 0; i < variant::kIntervals; i++) {
      const variant::BlockRange &range = walk.ranges[i];
      st_shared_16(plan + kRangesAt + 16 * i, {{(uint32_t)range.first, (uint32_t)range.end, (uint32_t)range.full_first,
                                                (uint32_t)range.full_end}});
    }
  }

  // Read them. One thread. @return false when there are no more tiles
  KJIT_DEVICE static bool load(uint32_t plan, Tile &tile, variant::BlockWalk &walk) {
    const Chunk where = ld_shared_16(plan);
    tile.query_tile = where.word[0];
    if (tile.query_tile == kNoTile) return false;
    tile.head = where.word[1];
    tile.batch = where.word[2];
    if constexpr (cfg::kSplitKv) {
      const Chunk split = ld_shared_16(plan + 16);
      tile.index = split.word[0];
      tile.num_splits = split.word[1] >> 16;
      tile.split = split.word[1] & 0xffff;
      tile.blocks = {(int)split.word[2], (int)split.word[3]};
    }
    const Chunk numbers = ld_shared_16(plan + kNumbersAt);
    walk.count = numbers.word[0];
    walk.position = numbers.word[1];
    walk.first_entry = numbers.word[2];
    walk.start_at(numbers.word[3]);
#pragma unroll
    for (int i = 0; i < variant::kIntervals; i++) {
      const Chunk range = ld_shared_16(plan + kRangesAt + 16 * i);
      walk.ranges[i] = {(int)range.word[0], (int)range.word[1], (int)range.word[2], (int)range.word[3]};
    }
    return true;
  }
};

struct VariantPlanner {
  const attention_sm90_params &p;
  const attention_variant_params &v;
  const Layout at;
  const int lane;
  BoundRing bounds;

  KJIT_DEVICE VariantPlanner(const attention_sm90_variant_params &params, Layout layout, int lane)
      : p(params.base), v(params.variant), at(layout), lane(lane) {}

  // All lanes of a warp.
  KJIT_DEVICE void run() {
    TileScheduler queue{p};
    int parity = 1;
    // Where lists have counters, each tile waits for its own list; else all lists have to be there from here on.
    if (variant::kListed && v.lists.made == nullptr) griddepcontrol_wait();
    const int ahead = variant::kListed && v.lists.ahead != nullptr ? *v.lists.ahead : 0;
    while (true) {
      mbarrier_wait_parity(at.plan_empty(), parity);
      parity ^= 1;
      Tile tile;
      variant::BlockWalk walk;
      const bool found = find_tile(queue, ahead, tile, walk);
      if constexpr (kPlannedBounds) __syncwarp(); // all lanes' bounds come before the arrival
      bounds.advance();
      if (lane == 0) {
        if (found)
          Plan::store(at.plan(), tile, walk);
        else
          store_end_of_tiles(at.plan());
        mbarrier_arrive(at.plan_full()); // orders the stores
        if (found) count_reader(tile);
      }
      if (!found) break;
    }
    if (lane == 0) queue.finish();
    if (variant::kListed && v.lists.made != nullptr) griddepcontrol_wait(); // this kernel must not end before that one
  }

private:
  // Wait until a tile's list is there, where the kernel that makes the lists tells so. All lanes.
  KJIT_DEVICE void wait_for_list(const Tile &tile) const {
    if (!variant::kListed || v.lists.made == nullptr) return;
    if (lane == 0) {
      while ((int)ld_acquire_u32(v.lists.made + list_of(v, tile)) < v.lists.writers) {
      }
      fence_async_proxy_global(); // TMA reads the list's keep words
    }
    __syncwarp();
  }
  // Count this tile as a reader of its list. The last reader sets the counter to zero for the next launch: all others
  // have found their list made, so that nobody waits for it any more. One thread.
  KJIT_DEVICE void count_reader(const Tile &tile) const {
    if (!variant::kListed || v.lists.made == nullptr) return;
    int *const made = v.lists.made + list_of(v, tile);
    if ((int)atom_acq_rel_add(made, 1) == v.lists.writers + v.lists.readers - 1) *made = 0;
  }

  // @return false when there are no more tiles
  KJIT_DEVICE bool find_tile(TileScheduler &queue, int ahead, Tile &tile, variant::BlockWalk &walk) const {
    while (true) {
      const int number = broadcast_from_lane_0(lane == 0 ? queue.next() : 0);
      if (number == kNoTile) return false;
      tile = tile_by_number(p, number, ahead);
      wait_for_list(tile);
      begin_walk(walk, v, p, tile, lane, at, bounds.slot);
      if (!cfg::kSplitKv || take_split(tile, walk)) return true;
    }
  }

  // Give a split its part of the tile's walk; the first splits have one block more where they cannot be equal.
  // @return false for a split that does not exist, because the tile has fewer blocks than there are splits
  KJIT_DEVICE bool take_split(Tile &tile, variant::BlockWalk &walk) const {
    tile.blocks = {0, 0}; // the consumers go by the entries
    tile.num_splits = variant::smaller(p.splits, walk.count);
    if (tile.split >= tile.num_splits) return false;
    const int least = walk.count / tile.num_splits, longer = walk.count % tile.num_splits;
    walk.position = tile.split * least + variant::smaller(tile.split, longer);
    walk.count = walk.position + least + (tile.split < longer);
    return true;
  }
};

struct VariantProducer : Producer {
  // A key block and where its rows lie.
  struct Block {
    int number = variant::kNoBlock, key_head = 0, batch = 0;
  };

  const attention_variant_params &v;
  Tile tile; // the tile whose blocks are loaded: `at_block` of `walk`, which begins at its list, comes next
  variant::BlockWalk walk;
  int at_block = 0, entry, ask_at, written; // that block's entry; when to ask for the next plan; blocks with keep words
  int key_head;
  int plan_parity = 0;

  KJIT_DEVICE VariantProducer(const attention_sm90_variant_params &params, Layout layout)
      : Producer{params.base, layout}, v(params.variant) {
    walk.entries = v.lists.entries;
    walk.count = 0;
  }

  // Each turn loads K of one block and V of the block before it, which may be of the tile before. One thread.
  KJIT_DEVICE void run() {
    Block pending; // whose V is still to be loaded
    bool has_more = true;
    do {
      if (at_block == walk.count) has_more = begin_tile();
      Block block;
      if (has_more) block = load_next_keys();
      if (pending.number >= 0) load_values_of(pending);
      pending = block;
      if (cfg::kQueryBuffers == 1 && has_more && at_block == walk.count) {
        load_values_of(pending);
        pending.number = variant::kNoBlock;
      }
    } while (has_more);
  }

private:
  // Wait for the next tile's plan, and load its Q. @return false when there are no more tiles, which the consumers are
  // told then
  KJIT_DEVICE bool begin_tile() {
    mbarrier_wait_parity(at.plan_full(), plan_parity);
    plan_parity ^= 1;
    if (!Plan::load(at.plan(), tile, walk)) {
      announce_end();
      return false;
    }
    load_query(tile);
    at_block = walk.position;
    entry = entry_of(at_block);
    ask_at = variant::larger(walk.count - 1 - Plan::kPlannedAhead, at_block);
    written = 0;
    key_head = tile.head / p.heads_per_kv;
    return true;
  }

  // The entry of the tile's i-th block in the order of its visits. Without a list every block is judged by all
  // consumers.
  KJIT_DEVICE int entry_of(int i) const {
    const int found = entry_in_turn(walk, i);
    if (!kParted || walk.first_entry >= 0) return found;
    return found / 2 * kEntryStates + kPartialStates;
  }

  // Load K of the tile's next block, and leave its entry. @return the block
  KJIT_DEVICE Block load_next_keys() {
    if (at_block == ask_at) mbarrier_arrive(at.plan_empty());
    at_block++;
    const bool is_last = at_block == walk.count;
    const int after = is_last ? 0 : entry_of(at_block);
    mbarrier_wait_parity(at.keys_empty(keys.slot), keys.parity ^ 1);
    st_shared_4(at.entry(keys.slot), 2u * entry + is_last); // ordered by the arrival
    const Block block = {entry / kEntryStates, key_head, tile.batch};
    load_entry(block, entry % kEntryStates);
    entry = after;
    return block;
  }

  // Load K of a block and, where its states say that it has any, its keep words.
  KJIT_DEVICE void load_entry(const Block &block, uint32_t states) {
    const uint32_t full = at.keys_full(keys.slot);
    const bool is_written = kHasKeep && (states & states >> 1 & kPartialStates);
    load_block<cfg::bands(cfg::kHeadDim)>(p.k, at.keys(keys.slot), full, block, is_written ? shared::kKeepBytes : 0);
    if (is_written) {
      const int64_t place = (int64_t)list_of(v, tile) * v.lists.written + written++;
      bulk_load(at.keep(keys.slot, 0), (const char *)v.lists.words + place * shared::kKeepBytes, full,
                shared::kKeepBytes);
    }
    keys.advance();
  }

  KJIT_DEVICE void load_values_of(const Block &block) {
    mbarrier_wait_parity(at.values_empty(values.slot), values.parity ^ 1);
    load_block<cfg::bands(cfg::kHeadDimV)>(p.v, at.values(values.slot), at.values_full(values.slot), block, 0);
    values.advance();
  }

  // As Producer::load_rows(); `more`: bytes that the caller lets count on `full` besides.
  template <int kBands>
  KJIT_DEVICE void load_block(const attention_tensor_map &m, uint32_t shared, uint32_t full, const Block &block,
                              uint32_t more) {
    mbarrier_arrive_expect_tx(full, kBands * cfg::kKeyRows * cfg::kRowBytes + more);
    for (int i = 0; i < kBands; i++)
      load_band(m, shared + i * cfg::kKeyRows * cfg::kRowBytes, full, i * 64, block.number * cfg::kKeyRows,
                block.key_head, block.batch);
  }
};
