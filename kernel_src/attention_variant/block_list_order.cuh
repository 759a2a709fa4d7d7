// The order in which the attention kernel takes the tiles of a head: those with most key blocks first, so that what is
// left at the end of the launch is short. Of equals the later tile comes first.
//
// It is written by the last block of threads that finds a list of that head: a tile's place is the number of tiles that
// come before it, which kSharing lanes count together.
#pragma once
#include "attention_variant/block_list_tile.cuh"

namespace {

enum {
  kSharing = 4,                      // lanes that count for one tile
  kPlaced = LIST_THREADS / kSharing, // tiles whose places are found at a time
  kRanksAtOnce = 4,                  // ranks that a lane reads together
  kNoRank = -1                       // below that of every tile
};

// What tiles are ordered by; no two are alike. Lists have at most 2^27 entries in all, so that it does not overflow.
__device__ int rank_of(const Tile &tile, const int *counts, int which) {
  return which < tile.p.query_tiles ? counts[which] * tile.p.query_tiles + which : (int)kNoRank;
}

// Add this list to those that are complete. @return whether it is the last one of its head
__device__ bool arrive(const Tile &tile, Shared &shared) {
  int *const arrivals = tile.p.arrivals + tile.batch * gridDim.y + tile.list_head;
  __syncthreads(); // nobody reads the counts any more
  if (threadIdx.x == 0) {
    __threadfence(); // the list's number of entries comes before its arrival
    const bool is_last = atomicAdd(arrivals, 1) == tile.p.query_tiles - 1;
    if (is_last) *arrivals = 0; // for the next launch
    shared.counts[0] = is_last;
    __threadfence(); // the others' arrivals come before what is read of them
  }
  __syncthreads(); // it is known whether this is the last one
  return shared.counts[0];
}

// Write the order where this list is the last one. All threads, of which thread 0 wrote the list's number of entries.
__device__ void write_order(const Tile &tile, Shared &shared, int list) {
  const attention_block_lists &lists = tile.p.variant.lists;
  const int head = list - tile.tile, tiles = tile.p.query_tiles, part = threadIdx.x % kSharing;
  if (!arrive(tile, shared)) return;
  for (int first = 0; first < tiles; first += kPlaced) {
    const int which = first + (int)threadIdx.x / kSharing;
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
    if (part == 0 && which < tiles) lists.order[head + place] = {which, own / tiles};
  }
}

} // namespace
