// A block of threads' walk along its run of the schedule: the tiles that it has a share in, and which key blocks these
// shares are.
//
// Everything follows from the schedule and the lengths, so that every warp can walk by itself. Whoever includes this
// has included a config.cuh that defines the constants of namespace cfg.
#pragma once
#include <kjit/types.cuh>

#include "attention_serving/lengths.cuh"
#include "attention_serving/params.h"
#include "attention_serving/plan.cuh"
#include "attention_serving/rows.cuh"

// A tile of the schedule.
struct PlannedTile {
  int sequence, head, index;
  Sequence s;
  int tiles;            // of the sequence
  int64_t begins, cost; // on the line of all work
  Seen keys;            // that some row sees
  Seen all_see;         // that every row sees
  int start;            // first key of block 0: keys.low, or up to `alignment` - 1 keys before it
  int blocks;           // key blocks from there to the end of `keys`
};

// Which blocks of threads work on a tile, and on which key blocks this one does: [from, to).
struct Share {
  int first, last;
  int from, to;
};

struct Walk {
  const attention_serving_params &p;
  const int alignment; // keys: blocks begin at multiples of it
  plan::Runs runs = {};
  PlannedTile tile = {};
  Share share = {};

  KJIT_DEVICE explicit Walk(const attention_serving_params &params, int alignment = 1)
      : p(params), alignment(alignment) {}

  // Find the run's first tile. All threads of the block together; each gets the result. `chunk` is shared memory.
  // @return false when there is none
  KJIT_DEVICE bool begin(plan::Chunk &chunk) {
    attention_serving_run at;
    attention_serving_plan_head head = {};
    if (p.plan) { // both are loaded at once
      head = *p.plan;
      at = ((const attention_serving_run *)(p.plan + 1))[blockIdx.x];
    }
    if (p.plan && head.tag == p.plan_tag && head.runs == (int)gridDim.x) {
      runs = {head.runs, head.parts, head.length};
    } else {
      runs = plan::make_runs(p, chunk, (int)gridDim.x);
      at =
          runs.parts ? plan::run_of_part(p, runs, (int)blockIdx.x) : plan::find_run(p, chunk, blockIdx.x * runs.length);
    }
    if (at.sequence >= p.batch) return false;
    tile.sequence = at.sequence;
    tile.head = at.head;
    tile.index = at.tile;
    tile.begins = at.begins;
    tile.s = sequence_of(p, at.sequence);
    return true;
  }

  // Go on to the next tile. Whole warps. @return false when it is behind the run's end
  KJIT_DEVICE bool move() { return !runs.parts && advance() && tile.begins < (blockIdx.x + 1) * runs.length; }

  // Describe the tile. Has the block a share in it? If so, which.
  KJIT_DEVICE bool has_share() {
    describe();
    share = share_of_block();
    return (int)blockIdx.x >= share.first && (int)blockIdx.x <= share.last;
  }

  // Does the run end in this tile, so that there is no share behind this one?
  KJIT_DEVICE bool ends() const { return runs.parts || tile.begins + tile.cost >= (blockIdx.x + 1) * runs.length; }

private:
  // Fill in what follows from the tile's place.
  KJIT_DEVICE void describe() {
    const PackedRows rows(p, tile.s, tile.head, tile.index);
    const Seen first = seen_by(p, tile.s, rows.query(0)), last = seen_by(p, tile.s, rows.query(cfg::kRows - 1));
    tile.tiles = plan::tiles_of(p, tile.s);
    tile.cost = plan::begin_of(p, tile.s, tile.index + 1) - plan::begin_of(p, tile.s, tile.index);
    // What a row sees begins and ends no earlier than what the row before it sees.
    tile.keys = {first.low, last.high};
    tile.all_see = {last.low, first.high};
    tile.start = tile.keys.low - tile.keys.low % alignment;
    const int keys = tile.keys.high > tile.keys.low ? tile.keys.high - tile.start : 0;
    tile.blocks = (keys + cfg::kKeys - 1) / cfg::kKeys;
  }

  // The next tile; false behind the last.
  KJIT_DEVICE bool advance() {
    tile.begins += tile.cost;
    if (++tile.index < tile.tiles) return true;
    tile.index = 0;
    if (++tile.head < p.heads_kv) return true;
    tile.head = 0;
    // Sequences without rows are skipped, 32 at a time.
    const int lane = (int)threadIdx.x % kLanesPerWarp;
    for (int b = tile.sequence + 1; b < p.batch; b += kLanesPerWarp) {
      const bool has_rows = b + lane < p.batch && sequence_of(p, b + lane).rows > 0;
      const unsigned found = __ballot_sync(0xffffffffu, has_rows);
      if (!found) continue;
      unsigned bit = 0;
      while (!(found >> bit & 1u))
        bit++;
      tile.sequence = b + (int)bit;
      tile.s = sequence_of(p, tile.sequence);
      return true;
    }
    return false;
  }

  // The key block in which position x of the tile lies: the overhead comes first, then the blocks in equal parts.
  KJIT_DEVICE int block_at(int64_t x) const {
    const int64_t overhead = (int64_t)plan::kOverheadKeys * p.group;
    if (x <= overhead) return 0;
    return x >= tile.cost ? tile.blocks : (int)((x - overhead) * tile.blocks / (tile.cost - overhead));
  }

  KJIT_DEVICE Share share_of_block() const {
    const int block = (int)blockIdx.x;
    if (runs.parts) {
      const int part = block % runs.parts, first = block - part;
      return {first, first + runs.parts - 1, (int)((int64_t)tile.blocks * part / runs.parts),
              (int)((int64_t)tile.blocks * (part + 1) / runs.parts)};
    }
    const int64_t from = block * runs.length - tile.begins, to = from + runs.length;
    const Share whole = {block, block, 0, tile.blocks};
    if (from <= 0 && to >= tile.cost) return whole;
    if (p.most_splits == 1 || tile.blocks == 0 || tile.cost <= plan::kOverheadKeys * (int64_t)p.group) {
      const int owner = (int)(tile.begins / runs.length);
      return {owner, owner, 0, tile.blocks};
    }
    // The first position that lies in key block 1, or is the end: who has it has computed block 0.
    const int64_t overhead = (int64_t)plan::kOverheadKeys * p.group, keys = tile.cost - overhead;
    const int64_t second = overhead + (keys + tile.blocks - 1) / tile.blocks;
    const int first = (int)((tile.begins + second - 1) / runs.length);
    const int last = (int)((tile.begins + tile.cost - 1) / runs.length);
    if (first == last) return {first, last, 0, tile.blocks};
    return {first, last, block == first ? 0 : block_at(from), block_at(to)};
  }
};
