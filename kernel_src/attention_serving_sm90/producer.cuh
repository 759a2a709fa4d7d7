// The producer: one warp that walks along the run, tells the workers each share of a tile, and loads its K and V by
// TMA, key block after key block, as far ahead of the workers as there are stages, across the ends of tiles too.
//
// A key block comes in boxes of p.box_rows positions: one, or with pages as many as lie in pages of their own. Boxes
// have numbers from the share's first on; lane i looks up the page of box i of each 32 and issues its copies, so that
// the page table is read once for many blocks, coalesced, and before it is needed. A box behind the tile's last key is
// asked for in a page that does not exist, so that TMA writes zeros and nothing is looked up.
#pragma once
#include <kjit/ptx/griddepcontrol.cuh>
#include <kjit/ptx/mbarrier.cuh>
#include <kjit/ptx/tma.cuh>
#include <kjit/types.cuh>

#include "attention_serving_sm90/config.cuh"
#include "attention_serving_sm90/few.cuh"
#include "attention_serving_sm90/params.h"
#include "attention_serving_sm90/shared.cuh"

#include "attention_serving/walk.cuh"

struct Producer {
  const attention_serving_sm90_params &p;
  const Layout at;
  const int lane;
  const bool is_few; // the runs are those of a small batch
  Few few;
  Walk walk;       // otherwise; its tile and share are what the block has come to in both cases
  const int boxes; // of a key block
  Ring<cfg::kStages> ring;
  Ring<SERVING_SM90_JOBS> jobs;

  KJIT_DEVICE Producer(const attention_serving_sm90_params &params, Layout layout, int lane, bool is_few,
                       const Few &of_few, const Walk &first)
      : p(params), at(layout), lane(lane), is_few(is_few), few(of_few), walk(first),
        boxes(cfg::kKeys / params.box_rows) {}

  // `found`: the walk is at a tile.
  KJIT_DEVICE void run(bool found) {
    // Two loops, each of which lies in memory as it is run: code that is not in the instruction cache comes in order.
    if (is_few) {
#pragma unroll 1
      for (found = few.find(); found; found = few.move())
        if (few.describe(walk.tile, walk.share)) take(few.ends());
    } else {
#pragma unroll 1
      for (; found; found = walk.move())
        if (walk.has_share()) take(walk.ends());
    }
    griddepcontrol_wait(); // the launch must not end before that pass, whether or not there was a share
    walk.tile.sequence = p.serving.batch;
    announce(true);
  }

private:
  // Take the share that the walk has come to. Its first pages are asked for before anybody is told.
  KJIT_DEVICE void take(bool is_last) {
    const Box box = box_of(walk.tile, first_key() + lane * p.box_rows);
    announce(is_last);
    griddepcontrol_wait(); // what the append pass in front of this launch writes is read from here on
    load_share(walk.tile, walk.share, box);
  }

  KJIT_DEVICE int first_key() const {
    return walk.tile.start + walk.share.from * cfg::kKeys;
  }

  // Let the workers have the share that the walk has come to, or the end.
  KJIT_DEVICE void announce(bool is_last) {
    mbarrier_wait_parity(at.job_empty(jobs.slot), jobs.parity ^ 1);
    __syncwarp(); // all lanes have seen this phase: a short job can be done, and the next phase over, in no time
    if (lane == 0) {
      at.job(jobs.slot) = {walk.tile, walk.share, is_last};
      mbarrier_arrive(at.job_full(jobs.slot));
    }
    __syncwarp();
    jobs.advance();
  }

  // Where a box lies: its row in the map, and the map's row of the cache, or page.
  struct Box {
    int row, outer;
  };
  KJIT_DEVICE Box box_of(const PlannedTile &tile, int key) const {
    const attention_serving_params &s = p.serving;
    if (key >= tile.keys.high) return {0, s.cache_rows};
    const int position = tile.s.first_slot + key;
    if (!s.page_table) return {position, s.cu_k ? 0 : tile.s.cache_row};
    const int index = s.page_shift >= 0 ? position >> s.page_shift : position / s.page_size;
    return {position - index * s.page_size, s.page_table[tile.s.cache_row * s.page_table_stride + index]};
  }

  // `box`: the lane's first.
  KJIT_DEVICE void load_share(const PlannedTile &tile, const Share &share, Box box) {
    const int first = first_key();
    Box following = {};
    int held = 0; // the number of lane 0's box
    for (int block = share.from; block < share.to; block++) {
      const int number = (block - share.from) * boxes;
      if (number == held + kLanesPerWarp) {
        held = number;
        box = following;
      }
      // The next 32 pages are asked for when the first of these are used.
      if (number == held) following = box_of(tile, first + (held + kLanesPerWarp + lane) * p.box_rows);
      load_block(tile, box, lane - (number - held));
    }
  }

  // Load a block of K and V, each once its buffer is empty. `index`: the lane's box among the block's.
  KJIT_DEVICE void load_block(const PlannedTile &tile, Box box, int index) {
    load_boxes<cfg::kKeyBands, cfg::kKeyRowBytes>(p.k, at.keys(ring.slot), at.keys_empty(ring.slot),
                                                  at.keys_full(ring.slot), tile.head, box, index);
    load_boxes<cfg::kValueBands, cfg::kValueRowBytes>(p.v, at.values(ring.slot), at.values_empty(ring.slot),
                                                      at.values_full(ring.slot), tile.head, box, index);
    ring.advance();
  }

  template <int kBands, int kRowBytes>
  KJIT_DEVICE void load_boxes(const serving_tensor_map &map, uint32_t shared, uint32_t empty, uint32_t full, int head,
                              Box box, int index) const {
    mbarrier_wait_parity(empty, ring.parity ^ 1);
    if (lane == 0) mbarrier_arrive_expect_tx(full, kBands * cfg::kKeys * kRowBytes);
    __syncwarp(); // the bytes are expected before they come
    if (index >= 0 && index < boxes) {
#pragma unroll
      for (int i = 0; i < kBands; i++)
        tma_load(shared + (i * cfg::kKeys + index * p.box_rows) * kRowBytes, (const TensorMap *)&map, full,
                 i * cfg::kCacheColumns, box.row, head, box.outer);
    }
    __syncwarp();
  }
};
