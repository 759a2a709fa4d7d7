// Which key blocks a block of threads works on.
//
// A tile is up to kRows rows (queries times the query heads of a group) of one (batch, key head), with all its key
// blocks. All tiles' key blocks, tile after tile, are one long row of `total` blocks, cut into p.runs runs of equal
// length (to one block). A run belongs to one cluster; the part of it that lies in one tile is a segment. Most runs
// have one or two segments. The blocks of a segment are divided evenly among the blocks of threads of the cluster.
//
// Where a run ends inside a tile, the tile's segments lie in several runs, and their partial results are merged
// (merge.cuh). Everything here follows from the parameters alone, so that the producer and all consumers work it out by
// themselves and repeated launches divide the work alike.
#pragma once
#include <kjit/ptx/cluster.cuh>
#include <kjit/types.cuh>

#include "attention_decode_sm90/config.cuh"
#include "attention_decode_sm90/params.h"

struct Segment {
  int batch, head, row_tile; // head: of K and V
  int tile;                  // its number
  int first, count;          // this block of threads' key blocks
  int index;                 // of the run's segments
  bool whole;                // true when the run has all of the tile's key blocks
};

struct Schedule {
  const attention_decode_sm90_params &p;
  const int rank, run;
  const int blocks; // key blocks of a tile
  int at, end;      // this run's blocks that are still to be dealt with
  int index = 0;

  KJIT_DEVICE explicit Schedule(const attention_decode_sm90_params &params)
      : p(params), rank(cfg::kCluster == 1 ? 0 : (int)cluster_ctarank()), run(blockIdx.x / cfg::kCluster),
        blocks(ceil_div(params.seq_kv, cfg::kKeyRows)), at(start_of(run)), end(start_of(run + 1)) {}

  KJIT_DEVICE int tiles() const { return p.batch * p.heads_kv * p.row_tiles; }

  // The first block of a run.
  KJIT_DEVICE int start_of(int number) const { return (int)((int64_t)tiles() * blocks * number / p.runs); }
  // The run that has a block: the last one that begins at it or before.
  KJIT_DEVICE int run_of(int block) const {
    return (int)((((int64_t)block + 1) * p.runs - 1) / ((int64_t)tiles() * blocks));
  }

  // The run's next segment. @return false when there is none
  KJIT_DEVICE bool next(Segment &segment) {
    if (at >= end) return false;
    segment.tile = at / blocks;
    const int in_tile = at - segment.tile * blocks;
    const int all = blocks - in_tile < end - at ? blocks - in_tile : end - at; // of the whole cluster
    segment.row_tile = segment.tile % p.row_tiles;
    const int pair = segment.tile / p.row_tiles;
    segment.head = pair % p.heads_kv;
    segment.batch = pair / p.heads_kv;
    const int from = all * rank / cfg::kCluster, to = all * (rank + 1) / cfg::kCluster;
    segment.first = in_tile + from;
    segment.count = to - from;
    segment.index = index++;
    segment.whole = all == blocks;
    at += all;
    return true;
  }
};
