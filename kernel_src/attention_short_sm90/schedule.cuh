// Which tiles a block of threads works on, and in which order.
//
// A tile is 64 queries of one query head. The tiles of all heads are numbered so that those that share a key head
// follow each other. Every block has a run of tiles, within which the consumers take the tiles in turn. There are two
// kinds of runs, by p.whole_heads:
//   neighbouring numbers   where a key head has many tiles: its K and V are loaded once, and runs are equally long
//   whole key heads,       as many apart as there are blocks, where a key head has few tiles: blocks work on
//   neighbouring
//                          heads at the same time, whose rows lie side by side in memory where tokens come before heads
#pragma once
#include <kjit/types.cuh>

#include "attention_short_sm90/config.cuh"
#include "attention_short_sm90/params.h"

struct Tile {
  int query, head, batch; // the first of its 64 queries, and its query head
};

// The walk over a run's key heads. Producer and consumers walk alike.
struct Walk {
  const attention_short_sm90_params &p;
  int key_head, batch;
  int first; // the number, within the run, of this key head's first tile; below 0 where the run begins behind it
  int count; // tiles of the run

  KJIT_DEVICE explicit Walk(const attention_short_sm90_params &p) : p(p) {
    const int block = (int)blockIdx.x, longer = block < p.run_rest ? block : p.run_rest;
    const int unit = p.whole_heads ? tiles_of_head() : 1;
    const int number = p.whole_heads ? block * unit : block * p.run_length + longer, index = number / tiles_of_head();
    count = (p.run_length + (block < p.run_rest)) * unit;
    first = index * tiles_of_head() - number;
    key_head = index % p.heads_kv;
    batch = index / p.heads_kv;
  }

  KJIT_DEVICE int tiles_of_head() const { return p.query_tiles * p.group; }

  // One past the last tile of this key head in the run.
  KJIT_DEVICE int end() const {
    const int all = first + tiles_of_head();
    return all < count ? all : count;
  }

  KJIT_DEVICE bool is_done() const { return first >= count; }

  KJIT_DEVICE void advance() {
    first += tiles_of_head();
    batch += p.step_batches;
    key_head += p.step_heads;
    if (key_head < p.heads_kv) return;
    key_head -= p.heads_kv;
    batch++;
  }

  // The tile of a number between `first` and end().
  KJIT_DEVICE Tile tile(int number) const {
    const int in_head = number - first;
    if (p.group == 1) return {in_head * cfg::kRows, key_head, batch};
    const int member = in_head / p.query_tiles;
    return {(in_head - member * p.query_tiles) * cfg::kRows, key_head * p.group + member, batch};
  }
};

// How many keys a query sees: the first ones. Causal attention is aligned at the bottom right: query i sees the keys up
// to i + seq_kv - seq_q. The result may be 0 or less.
KJIT_DEVICE int keys_seen_by(const attention_short_sm90_params &p, int query) {
  const int last = cfg::kCausal ? query + p.seq_kv - p.seq_q + 1 : p.seq_kv;
  return last < p.seq_kv ? last : p.seq_kv;
}
