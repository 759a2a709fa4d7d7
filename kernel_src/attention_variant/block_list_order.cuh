// The order in which the attention kernel takes the tiles of a head: those with most key blocks first, so that what is
// left at the end of the launch is short. Of equals the later tile comes first.
//
// It is written by the last block of threads that finds a list of that head: a tile's place is the number of tiles that
// come before it, which kSharing lanes count together. Where there are lists of one head alone, which all heads share,
// that block also counts the tiles that have more than kLong times as many key blocks as the mean, such as those of
// tokens that see everything, up to one of kMostAhead.
#pragma once
#include <kjit/ptx/global.cuh>

#include "attention_variant/block_list_tile.cuh"

namespace {

enum {
  kSharing = 4,                      // lanes that count for one tile
  kPlaced = LIST_THREADS / kSharing, // tiles whose places are found at a time
  kRanksAtOnce = 4,                  // ranks that a lane reads together
  kNoRank = -1,                      // below that of every tile
  kLong = 2,
  kMostAhead = 8
};

// What tiles are ordered by; no two are alike. Lists have at most 2^27 entries in all, so that it does not overflow.
__device__ int rank_of(const Tile &tile, const int *counts, int which) {
  return which < tile.p.query_tiles ? counts[which] * tile.p.query_tiles + which : (int)kNoRank;
}

// What the blocks of threads of a head have told of its lists.
struct Arrivals {
  bool are_all; // this block of threads is the last one
  int entries;  // of all lists, for the last one
};

// Add this list, which has `count` entries, to those that are complete.
__device__ Arrivals arrive(const Tile &tile, Shared &shared, int count) {
  int *const arrivals = tile.p.arrivals + 2 * (tile.batch * gridDim.y + tile.list_head);
  __syncthreads(); // nobody reads the counts any more, and the list is written
  if (threadIdx.x == 0) {
    atomicAdd(arrivals + 1, count);
    // The list comes before its arrival, and the others' arrivals come before what is read of their lists.
    const bool is_last = (int)atom_acq_rel_add(arrivals, 1) == tile.p.query_tiles - 1;
    shared.counts[0] = is_last;
    if (is_last) {
      shared.counts[1] = atomicExch(arrivals + 1, 0); // zeros for the next launch
      *arrivals = 0;
    }
  }
  __syncthreads(); // it is known whether this is the last one
  return {shared.counts[0] != 0, shared.counts[1]};
}

// Write how many tiles come ahead, of which this warp has seen so many.
__device__ void write_ahead(const Tile &tile, Shared &shared, int seen) {
  if (threadIdx.x % kLanesPerWarp == 0) shared.findings[threadIdx.x / kLanesPerWarp] = seen;
  __syncthreads(); // what all warps have seen is there
  if (threadIdx.x != 0) return;
  int ahead = 0;
  for (int i = 0; i < LIST_THREADS / kLanesPerWarp; i++)
    ahead += shared.findings[i];
  *tile.p.variant.lists.ahead = variant::smaller(ahead, tile.p.query_tiles / kMostAhead);
}

// Write the order where this list, which has `count` entries, is the last one. All threads.
__device__ void write_order(const Tile &tile, Shared &shared, int list, int count) {
  const attention_block_lists &lists = tile.p.variant.lists;
  const int head = list - tile.tile, tiles = tile.p.query_tiles, part = threadIdx.x % kSharing;
  const Arrivals arrivals = arrive(tile, shared, count);
  if (!arrivals.are_all) return;
  int ahead = 0; // that this warp has seen
  for (int first = 0; first < tiles; first += kPlaced) {
    const int which = first + (int)threadIdx.x / kSharing;
    const bool exists = which < tiles;
    const int own = rank_of(tile, lists.counts + head, which);
    int place = 0;
    for (int others = 0; others < tiles; others += kRound) {
      if (threadIdx.x < kRound)
        shared.findings[threadIdx.x] = rank_of(tile, lists.counts + head, others + (int)threadIdx.x);
      __syncthreads(); // the ranks are there
#pragma unroll 4
      for (int i = kRanksAtOnce * part; i < variant::smaller(tiles - others, kRound); i += kRanksAtOnce * kSharing)
#pragma unroll
        for (int j = 0; j < kRanksAtOnce; j++)
          place += shared.findings[i + j] > own;
      __syncthreads(); // they have been read
    }
#pragma unroll
    for (int apart = 1; apart < kSharing; apart *= 2)
      place += __shfl_xor_sync(0xffffffffu, place, apart);
    const bool is_first = part == 0 && exists;
    if (is_first) lists.order[head + place] = {which, own / tiles};
    ahead += __popc(__ballot_sync(0xffffffffu, is_first && own / tiles * tiles > kLong * arrivals.entries));
  }
  if (lists.ahead != nullptr) write_ahead(tile, shared, ahead);
}

} // namespace
